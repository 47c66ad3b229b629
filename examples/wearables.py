"""Wearables: six people walk, each with an accelerometer. What does every step hold, and what is one person's gait?

A record is a time series of three axes. Cut into windows of one step, it is a table: a row a step, a column for each
time and axis. The signals are made here, so that what is found can be held to what they were made of: four shapes that
all people share, two of each person's own, every step a few of the six, and noise.

    python examples/wearables.py
"""

from __future__ import annotations

import numpy as np

from perdl import PerDL, cut_windows

PEOPLE = ("ada", "bob", "cy", "dee", "eli", "fay")
WINDOW, AXES, STEPS, NOISE = 16, 3, 300, 0.08
SHARED, OWN = 4, 2


def smooth_shapes(rng, how_many):
    """Draw shapes over one step, smooth in time, a different one on each axis."""
    raw = rng.standard_normal((how_many, AXES, WINDOW + 8))
    return np.array([[np.convolve(axis, np.hanning(9), "valid") for axis in shape] for shape in raw]).swapaxes(1, 2)


def records():
    """Make each person's record (time, axes), and the shapes it was made of, one a row."""
    shared = smooth_shapes(np.random.default_rng(0), SHARED)
    signals, truth = {}, {}
    for i, name in enumerate(PEOPLE):
        rng = np.random.default_rng([1, i])
        shapes = np.concatenate([shared, smooth_shapes(rng, OWN)]).reshape(SHARED + OWN, -1)
        shapes = np.linalg.qr(shapes.T).Q.T  # of length one, and at right angles
        size = rng.gamma(3, 1 / 3, (STEPS, len(shapes))) * rng.choice([-1, 1], (STEPS, len(shapes)))
        steps = (size * (rng.random(size.shape) < 0.3)) @ shapes
        steps += NOISE * rng.standard_normal(steps.shape)
        signals[name], truth[name] = steps.reshape(-1, AXES), shapes
    return signals, truth


def distance(shape, found):
    """How far the nearest of the found shapes is; a shape's sign means nothing."""
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    return min(np.minimum(np.linalg.norm(found - shape, axis=1), np.linalg.norm(found + shape, axis=1)))


def main():
    """Learn, print what was found, and return the figures."""
    signals, truth = records()
    windows = {name: cut_windows(record, WINDOW) for name, record in signals.items()}
    learning = {"n_atoms": SHARED + OWN, "threshold": 0.3}
    model = PerDL(n_global="auto", **learning).fit(windows)
    n_shared = len(model.global_components_)
    shared = max(distance(shape, model.global_components_) for shape in truth["ada"][:SHARED])
    own = max(distance(s, model.local_components_[name]) for name in PEOPLE for s in truth[name][SHARED:])

    apart = PerDL(n_global=0, **learning).fit(windows).local_components_
    alone = [max(distance(shape, apart[name]) for shape in truth[name][:SHARED]) for name in PEOPLE]

    part, _ = model.split(windows["ada"], "ada")
    share = (part**2).sum() / (windows["ada"] ** 2).sum()
    print(f"{len(PEOPLE)} people, {STEPS} steps each, {WINDOW} times x {AXES} axes = {WINDOW * AXES} features")
    print(f"shapes that all share: {n_shared} found, {SHARED} are there; mean edges of the paths between people:")
    print("   ", np.round(model.path_lengths_ / (len(PEOPLE) - 1), 2), "they jump where the shared ones end")
    print(f"the worst shared shape is {shared:.3f} from the truth; people alone are at {np.median(alone):.3f} (median)")
    print(f"the worst own shape of any person is {own:.3f} from the truth")
    print(f"of the energy of ada's steps {share:.0%} is shared")
    return {"n_shared": n_shared, "shared": shared, "own": own, "alone": alone}


if __name__ == "__main__":
    main()
