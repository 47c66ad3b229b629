"""What a server that asks what it likes draws out of its clients, for each mode of privacy.

    python benchmarks/privacy.py [--quick] [--data mnist|made-up] [--only TEXT]

The clients are perdl's own client app with its default terms (`hostile_server`), the attacks are in `sample_attacks`.
With ``none`` clients ask for no number of samples an atom. Images of MNIST are read from the folder `PERDL_DATA`/mnist,
default ../shared/data; without it, and with --quick, images are made up. About ten minutes of one core.

A cell of the first table: percent of the images that clients hold to which a vector of the server has a cosine of 0.9
or more, in brackets the same of as many images that no client holds; then the same at 0.99; `exact`: every entry is
found within 1e-6. In ``aggregated`` runs there are three clients with so many images each, and all of theirs count.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sample_attacks as attacks
from hostile_server import AGGREGATED, HostileServer, Refused
from numpy.typing import NDArray

from common.coders import CODERS
from common.learners import LEARNERS
from common.privacy_settings import MODES
from perdl_client.data.mnist import load_mnist

Floats = NDArray[np.floating]
MNIST = Path(os.environ.get("PERDL_DATA", "../shared/data")) / "mnist"
EPSILON = 10
DIGITS = 10


@dataclass(frozen=True)
class Images:
    """Images in columns, in [0, 1], in random order, and which digit each is."""

    pixels: Floats
    digits: NDArray[np.integer]

    def part(self, first: int, many: int) -> Floats:
        """Return some images; others for another ``first``, but those of the last half are never a client's."""
        return self.pixels[:, (first + np.arange(many)) % (self.pixels.shape[1] // 2)]

    def public(self, many: int, digit: int | None = None, first: int = 0) -> Floats:
        """Return images that no client has, of one digit if it is named."""
        half = self.pixels.shape[1] // 2
        chosen = np.arange(half, self.pixels.shape[1])
        if digit is not None:
            chosen = chosen[self.digits[chosen] == digit]
        return self.pixels[:, chosen[(first + np.arange(many)) % len(chosen)]]

    def of_digit(self, many: int, digit: int, seed: int) -> Floats:
        """Return a client's images, nine tenths of one digit."""
        rng, half = np.random.default_rng(seed), np.arange(self.pixels.shape[1] // 2)
        major = rng.choice(half[self.digits[half] == digit], int(0.9 * many), replace=False)
        return self.pixels[:, np.concatenate([major, rng.choice(half, many - len(major), replace=False)])]


def mnist() -> Images:
    pixels, digits = load_mnist(str(MNIST), "train")
    order = np.random.default_rng(5).permutation(len(pixels))
    return Images(pixels[order].T / 255.0, digits[order])


def made_up(side: int = 14, many: int = 4000, seed: int = 0) -> Images:
    """Draw images of ten kinds: strokes of the kind, each a little elsewhere and of another strength, and noise."""
    rng, at = np.random.default_rng(seed), np.arange(side)
    digits = rng.integers(0, DIGITS, many)
    places = rng.uniform(2, side - 3, (DIGITS, 6, 2))
    pixels = 0.15 * np.abs(rng.standard_normal((many, side, side)))
    for s, digit in enumerate(digits):
        for y, x in places[digit] + 1.2 * rng.standard_normal((6, 2)):
            pixels[s] += rng.uniform(0.3, 1) * np.exp(-((at[:, None] - y) ** 2 + (at - x) ** 2) / 2)
    return Images(np.minimum(pixels, 1).reshape(many, -1).T, digits)


@dataclass(frozen=True)
class Case:
    """Images, a mode of privacy, and how large the attacks are."""

    images: Images
    mode: str
    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def clients(self, n: int, *told: str, first: int = 0, own: Floats | None = None) -> Iterator[HostileServer]:
        """Yield the server of clients with ``n`` images each, or of one with its ``own`` and others without."""
        many = AGGREGATED if self.mode == "aggregated" else 1
        samples = [self.images.part(first + i * n, n) for i in range(many)]
        if own is not None:
            samples[0] = own
        if self.mode == "private":
            clip = float(np.median(np.linalg.norm(self.images.public(500), axis=0)))
            told = (*told, f"privacy.epsilon={EPSILON}", f"privacy.clip={clip:.3g}")
        with tempfile.TemporaryDirectory() as folder:
            yield HostileServer(Path(folder), samples, self.mode, *told)

    def judged(self, server: HostileServer, found: Floats) -> str:
        """Return a cell: what was found of the clients' images, and of as many others."""
        Y = np.hstack(server.samples)
        Z = self.images.public(Y.shape[1])
        shares = [[100 * attacks.recovered(found, A, cosine) for A in (Y, Z)] for cosine in (0.9, 0.99)]
        exact = 100 * attacks.exact(found, Y)
        words = ", ".join(f"{own:.3g} ({other:.3g})" for own, other in shares)
        return words + (f", exact {exact:.3g}" if exact else "")


def random_atoms(case: Case, r: int, rounds: int) -> str:
    with case.clients(case.size(500, 200), *attacks.ONE_CODE) as server:
        return case.judged(server, attacks.random_rounds(server, r, rounds))


def many_runs(case: Case) -> str:
    with case.clients(case.size(500, 200), *attacks.ONE_CODE) as server:
        found, served, why = attacks.random_runs(server, case.size(60, 40), 60)
        if served < 60:
            assert "another run" in why or "epsilon" in why, why
        return f"{case.judged(server, found)}; {'' if served < 60 else 'at least '}{served} runs"


def crafted(case: Case, kind: str) -> str:
    with case.clients(case.size(500, 200), *attacks.ONE_CODE) as server:
        return case.judged(server, attacks.crafted(server, kind, case.size(250, 100)))


def first_dictionary(case: Case, long: float) -> str:
    n = 20
    Y = case.images.part(0, n) * np.where(np.arange(n) == 3, long, 1)
    with case.clients(n, own=Y) as server:
        return case.judged(server, attacks.first_dictionaries(server, 2 * n))


def walked(case: Case, rounds: int) -> str:
    with case.clients(case.size(60, 30)) as server:
        n = sum(Y.shape[1] for Y in server.samples)
        return case.judged(server, attacks.walked_threshold(server, rounds, n))


RECOVERY: dict[str, Callable[[Case], str]] = {
    "one round, 250 random atoms": lambda case: random_atoms(case, case.size(250, 100), 1),
    "30 rounds, 60 random atoms": lambda case: random_atoms(case, case.size(60, 40), case.size(30, 10)),
    "30 rounds, 250 random atoms": lambda case: random_atoms(case, case.size(250, 100), case.size(30, 10)),
    "runs with other seeds, 60 random atoms": many_runs,
    **{f"D^g: {kind}": lambda case, kind=kind: crafted(case, kind) for kind in attacks.CRAFTED},
    "first dictionaries, 20 images": lambda case: first_dictionary(case, 1),
    "the same, one image ten times as long": lambda case: first_dictionary(case, 10),
    "differences, 60 rounds": lambda case: walked(case, case.size(60, 30)),
    "differences, 250 rounds": lambda case: walked(case, case.size(250, 80)),
}
"""Attacks that draw samples out."""


def trials(
    case: Case, score: Callable[[HostileServer, Floats], float], many: int, n: int = 20, told: Sequence[str] = ()
) -> str:
    """Return the advantage of a test of membership, over so many clients with the image and so many without it."""
    scores: dict[bool, list[float]] = {True: [], False: []}
    for t, inside in itertools.product(range(many), (True, False)):
        Y = case.images.part((2 * t + inside) * 3 * n, n)
        y = Y[:, 3] if inside else case.images.public(1, first=t)[:, 0]
        with case.clients(n, *told, first=(2 * t + inside) * 3 * n) as server:
            try:
                scores[inside].append(score(server, y))
            except Refused:
                scores[inside].append(0.0)
    return f"{attacks.advantage(scores[True], scores[False]):.2f}"


MEMBERSHIP: dict[str, Callable[[Case], str]] = {
    "likeness to one round of 10 random atoms": lambda case: trials(
        case, lambda server, y: attacks.score_by_atoms(server, y, 10), case.size(60, 10), told=attacks.ONE_CODE
    ),
    "likeness to first dictionaries": lambda case: trials(
        case, lambda server, y: attacks.score_by_first_dictionary(server, y, 40), case.size(40, 6)
    ),
    **{
        f"the image as D^g: {what}": lambda case, what=what: trials(
            case, lambda server, y: attacks.score_by_itself(server, y, what), case.size(60, 10)
        )
        for what in ("move", "nonzeros")
    },
    "length of differences, 40 rounds": lambda case: trials(
        case, lambda server, y: attacks.score_by_norm(server, y, case.size(40, 15)), case.size(16, 4)
    ),
}
"""Tests whether a client has an image."""


def digit(case: Case, phase: str) -> str:
    """Return how often the server tells the digit of which a client has nine tenths."""
    n, right, many = 200, 0, case.size(30, 10)
    told = ("n_atoms=20", "n_global=20", "n_restarts=1", "local_restarts=0", "warmup_steps=10", *attacks.ONE_CODE)
    open_case = replace(case, mode="none")

    def seen(server: HostileServer) -> Floats:
        first = server.start(*told)[0]
        if phase == "first":
            return first
        D_g = attacks.random_atoms(np.random.default_rng(0), len(first), 20)
        return server.ask(D_g).contribution - D_g

    references = []
    for kind in range(DIGITS):  # what a client of this digit would send, by the server's own images
        with open_case.clients(n, own=case.images.public(n, kind)) as server:
            references.append(seen(server))
    for t in range(many):
        with case.clients(n, own=case.images.of_digit(n, t % DIGITS, t), first=t * n) as server:
            try:
                found = seen(server)
            except Refused:
                continue
        right += attacks.nearest_kind(found, references, case.mode == "masked") == t % DIGITS
    return f"{100 * right / many:.0f} %"


LABELS: dict[str, Callable[[Case], str]] = {
    "which digit, by the first dictionary": lambda case: digit(case, "first"),
    "which digit, by one round": lambda case: digit(case, "round"),
}
"""Tests which digit a client holds; one in ten by chance."""


def ways(images: Images, n: int, r: int) -> list[str]:
    """Return rows of one round of random atoms for all learners and coders, without and with the guard."""
    rows = []
    for learner, coder in itertools.product(sorted(LEARNERS), sorted(CODERS)):
        told = (f"learner={learner}", f"coder={coder}", "n_nonzero=1", "threshold_unit=rms", "threshold=1.5")
        cells = []
        for mode, aggregation in itertools.product(("none", "guarded"), ("mean", "energy", "procrustes")):
            case = Case(images, mode)
            if aggregation == "procrustes" and learner != "orthogonal":
                cells.append("-")
                continue
            with case.clients(n, *told, f"aggregation={aggregation}") as server:
                try:
                    cells.append(case.judged(server, attacks.random_rounds(server, r, 1)))
                except Refused as error:
                    cells.append(short(error))
        rows.append(f"| {learner}, {coder} | " + " | ".join(cells) + " |")
    return rows


def short(error: Refused) -> str:
    """Return a client's reason in a word or two."""
    reasons = {
        "has the norm": "refused: length",
        "out of all proportion": "refused: length",
        "scaled copies": "refused: copies",
        "has no atom that": "no atom to send",
        "has no code that": "no atom to send",
        "does not take part": "refused: ledger",
        "does not fit a masked sum": "refused: too large",
        "does not accept": "refused: terms",
    }
    return next((word for text, word in reasons.items() if text in str(error)), f"refused: {error}")


def table(title: str, rows: dict[str, Callable[[Case], str]], images: Images, quick: bool, only: str) -> None:
    chosen = {name: measure for name, measure in rows.items() if only in name}
    if not chosen:
        return
    print(f"\n{title}\n\n| attack | " + " | ".join(MODES) + " |\n" + "|---" * (len(MODES) + 1) + "|", flush=True)
    for name, measure in chosen.items():
        began, cells = time.monotonic(), []
        for mode in MODES:
            try:
                cells.append(measure(Case(images, mode, quick)))
            except Refused as error:
                cells.append(short(error))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        logging.getLogger("privacy").info("%s took %.0f s", name, time.monotonic() - began)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="made-up images, few trials")
    parser.add_argument("--data", choices=("mnist", "made-up"))
    parser.add_argument("--only", default="", help="only attacks whose name holds this text")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    name = args.data or ("made-up" if args.quick or not MNIST.is_dir() else "mnist")
    if name == "made-up" and not args.quick:
        print(f"no MNIST at {MNIST} (set PERDL_DATA), or not asked for: the images are made up")
    images = mnist() if name == "mnist" else made_up()
    for title, rows in (
        ("Images drawn out: percent at a cosine of 0.9 (of images not held), at 0.99", RECOVERY),
        ("Which digit nine tenths of a client's 200 images are; 10 % by chance", LABELS),
        ("Is an image among a client's 20? True less false positives; 0 by chance", MEMBERSHIP),
    ):
        table(title, rows, images, args.quick, args.only)
    if args.only in "learners and coders":
        print("\nOne round of random atoms, one code a sample or a threshold, as above\n")
        heads = [f"{m}, {a}" for m, a in itertools.product(("none", "guarded"), ("mean", "energy", "procrustes"))]
        print("| learner, coder | " + " | ".join(heads) + " |\n" + "|---" * 7 + "|")
        print("\n".join(ways(images, 120, 40)), flush=True)


if __name__ == "__main__":
    main()
