"""A weak client: somebody with 30 samples among three with 1,500. What does the federation do for him?

Samples are patches of 8 x 8 pixels of the two photographs that scikit-learn ships (`pip install scikit-learn`):
a third of the temple each for the strong ones, the flower for the weak one. Patches lose their mean. The error is
measured on 2,000 other patches of the flower, each written with five atoms.

    python examples/weak_client.py
"""

from __future__ import annotations

import warnings

import numpy as np

from perdl import PerDL

try:
    from sklearn.datasets import load_sample_image
except ModuleNotFoundError:
    raise SystemExit("this example needs scikit-learn: pip install scikit-learn") from None

WEAK, STRONG, SIDE = 30, 1500, 8
LEARNING = {
    "n_atoms": 48,
    "coder": "top-k",
    "n_nonzero": 8,
    "start": "svd",
    "local_restarts": 0,
    "min_usage": 0.0,
    "min_samples": 1,  # of 30 patches many atoms are used by one alone: a client must agree to that
    "rounds": 30,
    "aggregation": "energy",  # a client's atoms count for what they carry
}


def patches(picture, how_many, rng):
    """Cut patches at random places, one a row, without their means."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))
    rows, columns = (rng.integers(0, n, how_many) for n in windows.shape[:2])
    cut = windows[rows, columns].reshape(how_many, -1)
    return cut - cut.mean(axis=1, keepdims=True)


def samples():
    """Cut each client's patches, and the flower's that nobody has."""
    rng = np.random.default_rng(0)
    temple, flower = (load_sample_image(f"{name}.jpg").mean(axis=2) / 255 for name in ("china", "flower"))
    clients = {
        f"strong-{i + 1}": patches(part, STRONG, rng) for i, part in enumerate(np.array_split(temple, 3, axis=1))
    }
    flower = np.array_split(flower, 3, axis=1)[1]
    return {**clients, "weak": patches(flower, WEAK, rng)}, patches(flower, 2000, rng)


def error(model, rows, client):
    """Relative error of rows written with five atoms of a client's dictionary."""
    return float(np.linalg.norm(rows - model.reconstruct(rows, client, 5)) / np.linalg.norm(rows))


def main():
    """Learn, print what was found, and return the figures."""
    clients, unseen = samples()
    alone = PerDL(n_global=0, **LEARNING).fit(clients)
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        together = PerDL(n_global=20, **LEARNING).fit(clients)
    pooled = PerDL(n_global=0, **LEARNING).fit({"all": np.concatenate(list(clients.values()))})
    found = {
        "alone": error(alone, unseen, "weak"),
        "together": error(together, unseen, "weak"),
        "borrowed": error(alone, unseen, "strong-1"),
        "pooled": error(pooled, unseen, "all"),
    }
    print(f"{WEAK} patches of a flower, {STRONG} of a temple at each of three others; error on unseen flower patches")
    print(f"  the weak client alone              {found['alone']:.3f}")
    print(f"  in the federation                  {found['together']:.3f}, with 20 of 48 atoms shared")
    print(f"  a strong client's own dictionary   {found['borrowed']:.3f}, if he could have it")
    print(f"  all patches in one place           {found['pooled']:.3f}, if anybody could have them")
    for doubt in doubts:
        print(f"perdl says: {doubt.message}")
    return found


if __name__ == "__main__":
    main()
