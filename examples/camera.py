"""A fixed camera: eight stretches of its film, each held by somebody else. What is the place, and what moves in it?

Nobody shows a frame. In every stretch something walks through the picture, and something stands still from its first
frame to its last: alone, nobody can tell what stands still from the background. At each block of 8 x 8 pixels the eight
learn two atoms, one of them shared. The film is made here, so that background and foreground are known.

    python examples/camera.py
"""

from __future__ import annotations

import warnings

import numpy as np

from perdl import PerDL

HEIGHT, WIDTH, BLOCK = 24, 32, 8
STRETCHES, FRAMES, NOISE = 8, 12, 3 / 255
LEARNING = {
    "n_global": 1,
    "n_atoms": 2,  # the place, and what covers it
    "coder": "top-k",
    "n_nonzero": 1,  # a frame is one atom's, so that what covers the place leaves no trace in it
    "start": "svd",
    "aggregation": "geometric-median",  # stretches in which the place was never free do not count
    "rounds": 3,
    "min_samples": 1,
}


def film(seed=0):
    """Make the background (h, w), the stretches (clients, frames, h, w), and masks of what is not background."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    background = (90 + 50 * np.sin(x / 5) * np.cos(y / 4) + 20 * rng.random((HEIGHT, WIDTH))) / 255
    frames = np.tile(background, (STRETCHES, FRAMES, 1, 1))
    masks = np.zeros(frames.shape, dtype=bool)
    for stretch in range(STRETCHES):
        stands = rng.integers(HEIGHT - 5), rng.integers(WIDTH - 5)
        row, start, grey = rng.integers(HEIGHT - 5), rng.integers(WIDTH), rng.integers(200, 255) / 255
        for t in range(FRAMES):
            walks = row, (start + 3 * t) % (WIDTH - 5)
            for (top, left), colour in ((stands, 30 / 255), (walks, grey)):
                covered = np.s_[stretch, t, top : top + 6, left : left + 6]
                frames[covered], masks[covered] = colour, True
    return background, frames + NOISE * rng.standard_normal(frames.shape), masks


def shared_place(blocks):
    """Return the shared picture of one block (b, b), from every client's frames of it (clients, frames, b, b)."""
    data = list(blocks.reshape(STRETCHES, FRAMES, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that two of eight have something in the way is what we look for
        model = PerDL(**LEARNING).fit(data)
    codes = np.concatenate([model.transform(rows, client)[:, 0] for client, rows in enumerate(data)])
    brightness = np.median(codes[codes != 0])
    return brightness * model.global_components_[0].reshape(BLOCK, BLOCK)


def psnr(picture, truth):
    """Likeness of two pictures in dB, higher is better."""
    return float(-10 * np.log10(np.mean((picture - truth) ** 2)))


def f1(found, masks):
    """Harmonic mean of precision and recall of the pixels found to be foreground."""
    return float(2 * (found & masks).sum() / (found.sum() + masks.sum()))


def main():
    """Learn, print what was found, and return the figures."""
    background, frames, masks = film()
    learnt = np.empty_like(background)
    for top in range(0, HEIGHT, BLOCK):
        for left in range(0, WIDTH, BLOCK):
            place = np.s_[top : top + BLOCK, left : left + BLOCK]
            learnt[place] = shared_place(frames[:, :, *place])
    alone = np.median(frames, axis=1)  # the best that one client can do
    everything = np.median(frames, axis=(0, 1))  # what nobody may compute
    found = {
        "together": psnr(learnt, background),
        "alone": [psnr(one, background) for one in alone],
        "all frames": psnr(everything, background),
        "f1 together": f1(np.abs(frames - learnt) > 0.12, masks),
        "f1 alone": f1(np.abs(frames - alone[:, None]) > 0.12, masks),
        "f1 all frames": f1(np.abs(frames - everything) > 0.12, masks),
    }
    print(f"{STRETCHES} clients with {FRAMES} frames of {HEIGHT} x {WIDTH} pixels each; one federation a block")
    low, high = min(found["alone"]), max(found["alone"])
    print("background, dB:       shared", f"{found['together']:.1f}, a client's median {low:.1f} to {high:.1f}")
    print(f"                      median of all frames, which nobody has, {found['all frames']:.1f}")
    print(f"foreground, F1:       shared {found['f1 together']:.3f}, alone {found['f1 alone']:.3f},", end=" ")
    print(f"all frames {found['f1 all frames']:.3f}")
    return found


if __name__ == "__main__":
    main()
