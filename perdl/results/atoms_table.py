"""Atoms as CSV: one row per feature, one column per atom."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from common.files import write_text
from perdl.results.run_result import RunResult


def write_atoms(result: RunResult, path: Path) -> None:
    """Write the atoms as CSV.

    The first column holds the names of the features, or their numbers. Then come ``shared 1``, ``shared 2``, ..., and
    for each client whose model is known the own atoms that its samples use, the one with most energy first: ``NAME own
    3``. Numbers count from 1, as in the figures. Signs are those of the dictionary. Where some clients share an atom
    that others lack, its column is called ``shared 1 of 7 clients``. The table of a client's own folder has the shared
    atoms that this client shares.

    Parameters
    ----------
    result : RunResult
        The run or model.
    path : Path
        File to write.
    """
    D = result.global_dictionary
    members = [] if result.client else list(result.members.values())
    of = [f" of {count} clients" for count in np.sum(members, axis=0)] if members else [""] * D.shape[1]
    known = [] if result.summary.get("masked") else result.shared_atoms  # else in coordinates that nobody reads
    columns = {f"shared {k + 1}{of[k]}": D[:, k] for k in known}
    for client, own in result.local_dictionaries.items():
        columns |= {f"{client} own {k + 1}": own[:, k] for k in result.by_energy(client)}
    d = max((len(column) for column in columns.values()), default=0)
    names = result.feature_names if len(result.feature_names) == d else [f"feature {j + 1}" for j in range(d)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["feature", *columns])
    writer.writerows([name, *(float(column[j]) for column in columns.values())] for j, name in enumerate(names))
    write_text(path, text.getvalue())
