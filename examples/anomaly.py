"""Anomalies: six plants measure the same machine. One has a fault in a third of its records. Which records are they?

Where a fault is that frequent it is no outlier at the plant: much of what varies there varies by the fault, and
principal components of the plant's own data take it for normal. No other plant has it, so it is in no shared atom, and
the energy that is left without the shared part (`anomaly_score`) ranks the records. The data are made here.

    python examples/anomaly.py
"""

from __future__ import annotations

import numpy as np

from perdl import PerDL

PLANTS, RECORDS, SENSORS, NOISE = 6, 300, 30, 0.05
SHARED = 5


def orthonormal(rows):
    """Turn rows into orthonormal ones; the first keep their span."""
    return np.linalg.qr(rows.T).Q.T


def draw(rng, shape, share):
    """Draw sparse sizes: a share of them is not zero."""
    return rng.gamma(3, 1 / 3, shape) * rng.choice([-1, 1], shape) * (rng.random(shape) < share)


def measured(seed=0):
    """Make each plant's records, and say which of plant-1's are faulty."""
    shared = orthonormal(np.random.default_rng(seed).standard_normal((SHARED, SENSORS)))
    records, faulty = {}, np.random.default_rng([seed, 1]).random(RECORDS) < 0.3
    for i in range(PLANTS):
        rng = np.random.default_rng([seed, 2, i])
        own = orthonormal(np.concatenate([shared, rng.standard_normal((3, SENSORS))]))[SHARED:]
        rows = draw(rng, (RECORDS, SHARED), 0.3) @ shared
        rows += 0.35 * draw(rng, (RECORDS, 1), 0.3) @ own[:1]  # a habit of this plant, and no fault
        rows += NOISE * rng.standard_normal(rows.shape)
        if i == 0:
            rows[faulty] += 1.3 * draw(rng, (int(faulty.sum()), 2), 1.0) @ own[1:]
        records[f"plant-{i + 1}"] = rows
    return records, faulty


def auc(scores, positive):
    """Probability that a positive one is ranked above another one."""
    higher = scores[positive][:, None] > scores[~positive]
    return float(higher.mean())


def left_by_components(rows, n):
    """Energy left of each row by the n first principal components of all of them."""
    rows = rows - rows.mean(axis=0)
    axes = np.linalg.svd(rows, full_matrices=False).Vh[:n]
    return ((rows - rows @ axes.T @ axes) ** 2).sum(axis=1)


def main():
    """Learn, print what was found, and return the figures."""
    records, faulty = measured()
    rows = records["plant-1"]
    model = PerDL(n_global="auto", n_atoms=SHARED + 3, threshold=0.25).fit(records)
    components = [auc(left_by_components(rows, n), faulty) for n in range(1, 11)]
    found = {
        "n_shared": len(model.global_components_),
        "shared": auc(model.anomaly_score(rows, "plant-1"), faulty),
        "components": components,
        "energy": auc((rows**2).sum(axis=1), faulty),
    }
    best = int(np.argmax(components))
    print(f"{PLANTS} plants, {RECORDS} records of {SENSORS} sensors each; {faulty.sum()} of plant-1's are faulty")
    print(f"{found['n_shared']} shared atoms found. Probability that a faulty record is ranked above another (AUC):")
    print(f"  anomaly_score                       {found['shared']:.3f}")
    print(
        f"  plant-1 alone, principal components {components[best]:.3f} with {best + 1} of them, the best number",
        end=" ",
    )
    print(f"by hindsight; {components[SHARED - 1]:.3f} with {SHARED}")
    print(f"  energy of the record                {found['energy']:.3f}")
    return found


if __name__ == "__main__":
    main()
