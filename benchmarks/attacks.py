"""Hostile and absent clients on the paper's synthetic set-up, as Markdown.

    python benchmarks/attacks.py [attacks] [one] [noise] [more] [absent] [both] [--seeds 10] [--workers 1]

Figures are d_{1,2}(D^g, truth) at the end, median and worst over the seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from common.aggregations import AGGREGATIONS
from common.dictionaries import dictionary_distance
from common.rng import stream
from common.settings import Settings, changed
from perdl.experiments.attacks import ATTACKS, Absent, Hostile
from perdl.experiments.federation import first_dictionaries, perma
from perdl.experiments.synthetic_runs import draw
from perdl.experiments.workers import each
from perdl.perma import Channel

NONE = "nobody"
ROBUST = ("trimmed", "geometric-median")


class HostileAndAbsent(Hostile):
    def present(self, t: int, n: int) -> Sequence[int]:
        return Absent(0.3, self.seed).present(t, n)


def liars(settings: Settings, attack: str, n: int) -> Channel:
    if attack == NONE:
        return Channel()
    able = np.arange(settings.synthetic.weak_clients, settings.n_clients)
    who = stream(settings.seed, "", "who lies").choice(able, n, replace=False)
    kind = HostileAndAbsent if settings.quorum else Hostile
    return kind(attack, sorted(who.tolist()), settings.seed)


def attacked(job: tuple[Settings, Sequence[tuple[str, str, str, int]]]) -> list[float]:
    """Final distance of each ``(attack, aggregation, matching, how many)``, all from the same data and starts."""
    settings, cases = job
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    out = []
    for attack, aggregation, matching, n in cases:
        own = changed(settings, aggregation=aggregation, matching=matching)
        D_g = perma(clients, starts, own, channel=liars(settings, attack, n)).global_dictionary
        out.append(dictionary_distance(D_g, truths[0].global_dictionary))
    return out


def absent(settings: Settings) -> dict[str, list[tuple[float, float, int]]]:
    """By aggregation, with all and with 30 % absent: distance over the last rounds, mean and largest, and rounds."""
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    shared, out = truths[0].global_dictionary, {}
    for aggregation in AGGREGATIONS:
        own, out[aggregation] = changed(settings, aggregation=aggregation), []
        for channel in (Channel(), Absent(0.3, settings.seed)):
            curve: list[float] = []
            perma(
                clients,
                starts,
                own,
                lambda t, m, curve=curve: curve.append(dictionary_distance(m.global_dictionary, shared)),
                channel,
            )
            late = curve[-10:] if settings.synthetic.noise else curve[-1:]
            limit = float(np.mean(late))
            # With noise the limit moves with who is there; it is reached at the first round that is as near as it gets.
            reached = next(t for t, distance in enumerate(curve) if distance <= limit + max(1e-12, 0.1 * limit))
            rounds = reached if settings.synthetic.noise else len(curve) - 1
            out[aggregation].append((limit, max(late), rounds))
    return out


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print()


def cell(values: Sequence[float]) -> str:
    return f"{np.median(values):.1g} / {np.max(values):.1g}"


def print_attacks(
    title: str,
    base: Settings,
    seeds: int,
    workers: int,
    n: int,
    aggregations: Sequence[str],
    matchings: Sequence[str],
    attacks: Sequence[str] = (NONE, *ATTACKS),
) -> None:
    cases = [(a, g, m, n) for m in matchings for a in attacks for g in aggregations]
    found = np.array(each(attacked, [(changed(base, seed=s), cases) for s in range(seeds)], workers))
    for m in matchings:
        print(f"{title}, {m}\n")
        rows = []
        for a in attacks:
            rows.append([a, *(cell(found[:, cases.index((a, g, m, n))]) for g in aggregations)])
        table(["attack", *aggregations], rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["attacks", "one", "noise", "more", "absent", "both"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    base, run = Settings(), (args.seeds, args.workers)
    noisy = changed(base, synthetic={"noise": 0.05})
    weak = changed(base, min_samples=1, synthetic={"weak_clients": 2})
    if "attacks" in args.parts:
        print_attacks("3 of 10 hostile", base, *run, 3, list(AGGREGATIONS), ("chain", "star"))
    if "one" in args.parts:
        loud = ("colluding", "colluding x 100")
        print_attacks("1 of 10 hostile", base, *run, 1, list(AGGREGATIONS), ("star",), loud)
    if "noise" in args.parts:
        print_attacks("3 of 10 hostile, noise 0.05", noisy, *run, 3, ("mean", "energy", *ROBUST), ("star",))
    if "more" in args.parts:
        print_attacks("3 of 10 hostile, 2 others weak (20 samples)", weak, *run, 3, ROBUST, ("star",))
        print_attacks("4 of 10 hostile", base, *run, 4, ROBUST, ("star",))
        print_attacks("4 of 10 hostile, trim = 0.4", changed(base, trim=0.4), *run, 4, ("trimmed",), ("star",))
        print_attacks("5 of 10 hostile", base, *run, 5, ROBUST, ("star",))
    if "both" in args.parts:
        for trim in (0.3, 0.45):
            both = changed(base, quorum=7, trim=trim, rounds=100)
            names = ROBUST if trim == 0.3 else ROBUST[:1]
            loud = ("random", "colluding", "one atom many times")
            print_attacks(f"3 of 10 hostile, 30 % absent, trim {trim}", both, *run, 3, names, ("star",), loud)
    if "absent" in args.parts:
        for settings in (base, noisy):
            results = each(absent, [changed(settings, seed=s) for s in range(args.seeds)], args.workers)
            print(f"30 % absent each round, noise {settings.synthetic.noise:g}\n")
            rows = []
            for name in AGGREGATIONS:
                everyone, some = (np.array([one[name][k] for one in results]) for k in (0, 1))
                row = [cell(found[:, 0]) for found in (everyone, some)]
                row += [f"{np.median(found[:, 2]):.0f} / {found[:, 2].max():.0f}" for found in (everyone, some)]
                rows.append([name, *row])
            table(["aggregation", "distance, all", "distance, 30 % absent", "rounds, all", "rounds, 30 % absent"], rows)


if __name__ == "__main__":
    main()
