"""Attacks of a server on its clients' samples: what it asks, and what it makes of the answers.

Each returns vectors that it holds for samples, in columns. Whether they are, only who has the samples can tell:
`recovered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hostile_server import HostileServer, Refused, Seen
from numpy.typing import NDArray

from common.errors import SettingsError

Floats = NDArray[np.floating]
ONE_CODE = ("learner=gradient", "coder=top-k", "n_nonzero=1", "aggregation=energy")
QUICK_START = ("start=random", "warmup_steps=0", "local_restarts=0", "refine_steps=0", "min_usage=0")


def unit(A: Floats) -> Floats:
    """Return the columns at length 1; zero columns stay."""
    norms = np.linalg.norm(A, axis=0)
    return A / np.where(norms > 0, norms, 1)


def likeness(found: Floats, Y: Floats) -> Floats:
    """Return for each sample the largest size of its cosine with any vector found."""
    return np.abs(unit(found).T @ unit(Y)).max(axis=0, initial=0.0)


def recovered(found: Floats, Y: Floats, cosine: float) -> float:
    """Return the share of the samples to which a vector found has at least this cosine."""
    return float((likeness(found, Y) >= cosine).mean())


def exact(found: Floats, Y: Floats, size: float = 1e-6) -> float:
    """Return the share of the samples of which, but for the sign, every entry was found within ``size``."""
    if not found.size:
        return 0.0
    best = np.abs(unit(found).T @ unit(Y)).argmax(axis=0)
    F = found[:, best]
    off = np.minimum(np.abs(F - Y).max(axis=0), np.abs(F + Y).max(axis=0))
    return float((off <= size).mean())


def random_atoms(rng: np.random.Generator, d: int, r: int) -> Floats:
    return unit(rng.standard_normal((d, r)))


def drawn(D_g: Floats, seen: Seen, step: float = 0.5) -> Floats:
    """Return what the atoms became, how they moved, and the sums of samples of which they are made.

    With one code a sample and the gradient learner an atom moves by c (m_j - S_jj D_j), where c = step / max S_jj and
    the energies are S_jj, so the sums m_j = sum of y_s x_sj are known.
    """
    move = seen.contribution - D_g
    w, found = seen.energies, [seen.contribution, move]
    if w is not None and w.max() > 0:
        found.append(move * w.max() / step + D_g * w)
    # What is left where an atom has not moved is rounding.
    return np.hstack(found)[:, np.tile(np.linalg.norm(move, axis=0) > 1e-9, len(found))]


def random_rounds(server: HostileServer, r: int, rounds: int, seed: int = 0) -> Floats:
    """Send other random atoms in each round, as long as the clients answer."""
    rng, d, found = np.random.default_rng(seed), len(server.samples[0]), []
    server.start(*QUICK_START, f"n_atoms={r}", f"n_global={r}", f"rounds={rounds}", f"seed={seed}")
    for _ in range(rounds):
        D_g = random_atoms(rng, d, r)
        found.append(drawn(D_g, server.ask(D_g)))
    return np.hstack(found)


def random_runs(server: HostileServer, r: int, runs: int) -> tuple[Floats, int, str]:
    """Begin one run after another, each of one round; return also how many were served, and why no more."""
    found = []
    for run in range(runs):
        try:
            found.append(random_rounds(server, r, 1, seed=run))
        except Refused as error:
            return np.hstack(found), run, str(error)
    return np.hstack(found), runs, ""


CRAFTED = ("zero", "huge", "scaled copies", "one-hot", "the client's own first atoms")


def crafted(server: HostileServer, kind: str, r: int, seed: int = 0) -> Floats:
    """Send a D^g that no honest server sends, one of `CRAFTED`."""
    d, rng = len(server.samples[0]), np.random.default_rng(seed)
    random, own = random_atoms(rng, d, r), kind == CRAFTED[-1]
    told = ("start=warm-up", "warmup_steps=5", "n_restarts=1", "local_restarts=0") if own else QUICK_START
    first = server.start(*told, f"n_atoms={r}", f"n_global={r}", f"seed={seed}")[0]
    D_g = {
        "zero": 0 * random,
        "huge": 1e6 * random,
        "scaled copies": random[:, :1] * np.geomspace(0.01, 50, r),
        "one-hot": np.eye(d)[:, rng.permutation(d)[np.arange(r) % d]],
        CRAFTED[-1]: np.hstack([unit(first), random])[:, :r],
    }[kind]
    return drawn(D_g, server.ask(D_g))


def walked_threshold(server: HostileServer, rounds: int, n: int, step: float = 0.5, seed: int = 0) -> Floats:
    """Send one direction g at lengths a, so that the samples pass the threshold one by one, and take differences.

    With one atom a g the client sends a g (1 - step) + step M / S, and the energy S; M / a is the sum of y (g'y) over
    the samples with |a g'y| above the threshold. The number of nonzeros tells how many these are, so the server
    halves the intervals of a that hold several. In private runs it has no number, and spaces a evenly.
    """
    d = len(server.samples[0])
    g = random_atoms(np.random.default_rng(seed), d, 1)
    told = ("learner=gradient", "coder=hard-threshold", "threshold_unit=rms", "threshold=0.1", "aggregation=energy")
    server.start(
        *QUICK_START, *told, f"step_size={step}", "n_atoms=1", "n_global=1", f"rounds={rounds}", f"seed={seed}"
    )

    def ask(a: float) -> tuple[float, Floats]:
        seen = server.ask(a * g)
        S = 0.0 if seen.energies is None else float(seen.energies[0])
        M = (seen.contribution - (1 - step) * a * g) * S / step / a
        return -1.0 if seen.nonzeros is None else seen.nonzeros * n, M[:, 0]

    known = {a: ask(a) for a in (1e-2, 20.0)}
    while len(known) < rounds:
        points = sorted(known)
        gaps = list(pairwise(points))
        sizes = [known[b][0] - known[a][0] for a, b in gaps]
        # Where the guard begins to hold the atom, several samples come at once: that gap is not worth halving for ever.
        widths = [np.log(b / a) * (b > a * (1 + 1e-7)) for a, b in gaps]
        worth = [w * size * (size > 1.5) for w, size in zip(widths, sizes, strict=True)]
        best = int(np.argmax(worth if max(worth) > 0 else widths))
        a = float(np.sqrt(np.prod(gaps[best])))
        known[a] = ask(a)
    points = sorted(known)
    found = []
    for a, b in pairwise(points):
        v = known[b][1] - known[a][1]
        size_ = float(g[:, 0] @ v)  # (g'y)^2 of the one sample, or a sum of such
        if size_ > 0 and np.linalg.norm(v) > 0:
            found.append(v / np.sqrt(size_))
    return np.stack(found, axis=1) if found else np.zeros((d, 0))


FIRST = {
    "svd, no step": ("start=svd", "warmup_steps=0", "learner=gradient", "coder=hard-threshold", "threshold=0"),
    "one restart, one code": ("start=warm-up", "n_restarts=1", "learner=gradient", "coder=top-k", "n_nonzero=1"),
    "svd, one code": ("start=svd", "warmup_steps=20", "learner=coordinate", "coder=top-k", "n_nonzero=1"),
    "orthogonal, one code": ("start=warm-up", "n_restarts=1", "learner=orthogonal", "coder=top-k", "n_nonzero=1"),
    "l4, one code": ("start=l4", "warmup_steps=20", "learner=orthogonal", "coder=top-k", "n_nonzero=1"),
    "l4, one step": ("start=l4", "warmup_steps=1", "learner=orthogonal", "coder=top-k", "n_nonzero=1"),
    "l4, gradient": ("start=l4", "warmup_steps=20", "learner=gradient", "coder=top-k", "n_nonzero=1"),
}
"""Settings by which a first dictionary shows much of few samples."""


def first_dictionaries(server: HostileServer, r: int) -> Floats:
    """Ask for first dictionaries, each in a run of its own, with more atoms than samples if the terms allow it."""
    d, found = len(server.samples[0]), []
    for told in FIRST.values():
        fits = "start=svd" in told or "start=l4" in told or "learner=orthogonal" in told
        most = min(r, d) if fits else r
        try:
            found += server.start(*told, f"n_atoms={most}", "n_global=1", "min_usage=0", "local_restarts=0")
        except (Refused, SettingsError):  # private runs have no l4
            continue
    return np.hstack(found) if found else np.zeros((d, 0))


def score_by_atoms(server: HostileServer, y: Floats, r: int) -> float:
    """Tell how much a sample looks like a member: its likeness to what one round of random atoms draws out."""
    return float(likeness(random_rounds(server, r, 1), y[:, None])[0])


def score_by_first_dictionary(server: HostileServer, y: Floats, r: int) -> float:
    """The same by the first dictionaries."""
    return float(likeness(first_dictionaries(server, r), y[:, None])[0])


def score_by_itself(server: HostileServer, y: Floats, what: str) -> float:
    """The same, with the sample itself as the one atom, which no other sample is near enough to use.

    It looks at how far the atom moved, or at what the client tells of how it fared.
    """
    size = float(np.linalg.norm(y))
    told = ("coder=hard-threshold", "threshold_unit=data", "learner=gradient")
    # The first dictionary is of the small threshold that a client's own atom needs; the atom's length makes up for it.
    z = 0.2
    server.start(*QUICK_START, *told, f"threshold={z}", "n_atoms=1", "n_global=1", "rounds=2")
    g = y[:, None] * (1.0001 * z / size**2)
    seen = server.ask(g)
    if what == "move":
        return float(np.linalg.norm(seen.contribution - g) > 1e-12 * np.linalg.norm(g))
    return {"nonzeros": seen.nonzeros, "error": seen.error}[what] or 0.0


def score_by_norm(server: HostileServer, y: Floats, rounds: int) -> float:
    """The same by the length of what a walked threshold draws out: no change of coordinates hides it."""
    n = sum(Y.shape[1] for Y in server.samples)
    lengths = np.linalg.norm(walked_threshold(server, rounds, n), axis=0)
    return -float(np.abs(lengths / np.linalg.norm(y) - 1).min(initial=1.0))


def advantage(inside: Sequence[float], outside: Sequence[float]) -> float:
    """Return TPR - FPR of the best rule "score at least t" of the first half of the trials, on the second half."""
    half = len(inside) // 2
    first, second = ((np.asarray(inside[s]), np.asarray(outside[s])) for s in (slice(half), slice(half, None)))

    def gain(pair: tuple[Floats, Floats], t: float) -> float:
        return float((pair[0] >= t).mean() - (pair[1] >= t).mean())

    best = max(np.concatenate(first), key=lambda t: gain(first, t))
    return gain(second, best)


def outline(D: Floats, masked: bool) -> Floats:
    """Return what tells kinds of data apart in atoms: their second moment; of hidden ones its spectrum alone."""
    C = D @ D.T
    C = C / (np.linalg.norm(C) or 1)
    return np.linalg.eigvalsh(C)[::-1] if masked else C.ravel()


def nearest_kind(seen: Floats, references: Sequence[Floats], masked: bool) -> int:
    """Return which of the references what was seen is most like."""
    mine, others = outline(seen, masked), [outline(one, masked) for one in references]
    return int(np.argmin([np.linalg.norm(mine - one) for one in others]))
