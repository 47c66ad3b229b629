"""Digits: five sites hold scans of digits, each above all of two kinds. How well does each write digits of any kind?

The images are scikit-learn's (1,797 of 8 x 8 pixels; `pip install scikit-learn`). The error is measured on 400
images that no site has, each written with five atoms. All three begin from the same kind of start: each site alone, the
federation, and all images in one place, which is what the sites may not do.

    python examples/digits.py
"""

from __future__ import annotations

import warnings

import numpy as np

from perdl import PerDL

try:
    from sklearn.datasets import load_digits
except ModuleNotFoundError:
    raise SystemExit("this example needs scikit-learn: pip install scikit-learn") from None

LEARNING = {
    "n_atoms": 40,
    "coder": "top-k",
    "n_nonzero": 10,
    "start": "svd",  # leading directions of any site resemble the others'
    "warmup_steps": 0,
    "local_restarts": 0,
    "min_usage": 0.0,
    "aggregation": "procrustes",
}


def deal(images, labels, rng):
    """Give each of five sites 45 images of each of its two digits and 4 of each other one; keep 400 for the test."""
    order = rng.permutation(len(images))
    test, rest = order[:400], order[400:]
    heaps = [list(rest[labels[rest] == digit]) for digit in range(10)]
    sites = {}
    for site in range(5):
        held = [heaps[digit].pop() for digit in range(10) for _ in range(45 if digit // 2 == site else 4)]
        sites[f"site-{site + 1}"] = images[held]
    return sites, images[test]


def error(model, images, site):
    """Relative error of images written with five atoms of a site's dictionary."""
    return float(np.linalg.norm(images - model.reconstruct(images, site, 5)) / np.linalg.norm(images))


def main():
    """Learn, print what was found, and return the figures."""
    digits = load_digits()
    sites, unseen = deal(digits.data / 16, digits.target, np.random.default_rng(0))
    alone = PerDL(n_global=0, **LEARNING).fit(sites)
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        together = PerDL(n_global=20, **LEARNING).fit(sites)
    pooled = PerDL(n_global=0, **LEARNING).fit({"all": np.concatenate(list(sites.values()))})

    found = {
        "alone": [error(alone, unseen, site) for site in sites],
        "together": [error(together, unseen, site) for site in sites],
        "pooled": error(pooled, unseen, "all"),
    }
    print(f"5 sites of {len(sites['site-1'])} images, 90 of them of two digits; error on {len(unseen)} that nobody has")
    print(f"each site alone       {min(found['alone']):.3f} to {max(found['alone']):.3f}")
    print(f"in the federation     {min(found['together']):.3f} to {max(found['together']):.3f}, 20 of 40 atoms shared")
    print(f"all in one place      {found['pooled']:.3f}")
    for doubt in doubts:
        print(f"perdl says: {doubt.message}")
    return found


if __name__ == "__main__":
    main()
