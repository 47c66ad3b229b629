"""A look at clients' data before a run: what each file holds, whether they fit together, which settings suit them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from common.protocol import natural_key
from common.settings import Settings, override_settings
from perdl.look import OTHER_UNITS, Look, measure
from perdl.moments import variances
from perdl.suggest import Spectrum, agreed_constants, suggest
from perdl_client.data import client_files
from perdl_client.doubts import doubts, facts
from perdl_client.file_checks import is_data, is_left_behind
from perdl_client.image_source import IMAGE_SUFFIXES
from perdl_client.sources import Features, load_samples

Floats = NDArray[np.floating]
Values = dict[str, float | int | str | bool]


@dataclass(frozen=True)
class Report:
    """What ``perdl check`` says.

    Attributes
    ----------
    clients : list of Look
    problems : list of str
        For which a run would be refused.
    notes : list of str
        What may spoil a result.
    suggested : dict
        Settings by dotted names; empty if there are problems.
    """

    clients: list[Look]
    problems: list[str]
    notes: list[str]
    suggested: Values

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain lists and dicts."""
        return asdict(self)

    def toml(self) -> str:
        """Return the suggested settings as a configuration file."""
        lines = [f"{key} = {_toml(value)}" for key, value in self.suggested.items() if "." not in key]
        lines += ["", "[data]"]
        if "data.path" not in self.suggested:
            lines.append(
                "# no path: no folder or glob names these files alone, and each client is given its own by --data"
            )
        data = {key.removeprefix("data."): value for key, value in self.suggested.items() if key.startswith("data.")}
        return "\n".join(lines + [f"{key} = {_toml(value)}" for key, value in data.items()])


def _toml(value: float | int | str | bool) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def find_clients(places: Sequence[str], settings: Settings) -> list[Path]:
    """Return one file or folder for each client, in the order in which a simulation numbers them.

    Parameters
    ----------
    places : sequence of str
        One folder or glob is what ``data.path`` names: each of its entries is a client (a folder of images is one). Of
        several, each file and folder is a client, and so is what a glob matches.
    settings : Settings

    Raises
    ------
    DataError
        If there is none.
    """
    if len(places) == 1 and _is_client_folder(Path(places[0])):
        return [Path(places[0])]
    found: list[Path] = []
    meant = [place for place in places if len(places) == 1 or not is_left_behind(Path(place))]  # the shell matched them
    for place in meant:
        is_client = os.path.isfile(place) or (len(places) > 1 and os.path.isdir(place))
        found += [Path(place)] if is_client else client_files(override_settings(settings, {"data.path": place}))
    return sorted(dict.fromkeys(found), key=lambda path: natural_key(str(path)))


def check(
    files: Sequence[Path],
    settings: Settings,
    path: str | None = None,
    on_file: Callable[[str], None] = lambda text: None,
) -> Report:
    """Look at each client's file, one at a time, and at how they fit together.

    Parameters
    ----------
    files : sequence of Path
    settings : Settings
        Of the table ``data``: how files are read, and what is done to samples before they are learnt from.
    path : str, optional
        ``data.path`` that names these files, for the suggestion.
    on_file : callable (str) -> None, optional
        Told which file is being read.

    Returns
    -------
    Report
    """
    looks, problems, notes, spectra, seen = [], [], [], [], {}
    own_notes: dict[str, list[str]] = {}  # who, by what is said
    deviations: list[Floats] = []
    features = Features()
    for i, file in enumerate(files):
        look = Look(f"client-{i + 1}", str(file))
        looks.append(look)
        on_file(f"{look.name}: {file}")
        try:
            samples = load_samples(
                file, samples_in=settings.data.samples_in, variable=settings.data.variable, allow_nan=True
            )
        except DataError as error:
            problems.append(f"{look.name}: {error}")
            continue
        directions, said, wrong = measure(look, samples, settings)
        for note in said:
            own_notes.setdefault(note, []).append(look.name)
        if not look.missing:
            deviations.append(np.sqrt(variances(samples.data)))
        spectra.append(directions)
        if look.rank and not look.missing and len(samples.shape) == 1 and settings.data.window is None:
            seen[look.name] = facts(samples.data)
        wrong.append(features.compare(samples, str(file), settings.data.samples_in))
        problems += [f"{look.name}: {file}: {one}" for one in wrong if one]
    turn = f'set data.samples_in = "{"columns" if settings.data.samples_in == "rows" else "rows"}"'
    notes += [f"{_names(names)}: {note}" for note, names in own_notes.items()] + doubts(seen, turn)
    suggested = {} if problems else _suggested(looks, spectra, settings, files, path)
    constants = agreed_constants(deviations)
    mixed = any(OTHER_UNITS in note for note in own_notes) and not any(one.counting for one in seen.values())
    if not problems and constants and mixed and _untouched(settings):
        divided = check(files, override_settings(settings, {"data.divide_by": constants}), path, on_file)
        notes.append(
            "the cure for other units is constants that all clients agree on, about the standard deviation of each "
            f"feature: -c {shlex.quote(f'data.divide_by={constants}')}; what is suggested does so"
        )
        return Report(looks, problems, list(dict.fromkeys(notes + divided.notes)), divided.suggested)
    return Report(looks, problems, notes + _weakest(looks, spectra) + _few(looks), suggested)


def _untouched(settings: Settings) -> bool:
    """Whether features are learnt from as the files have them."""
    data = settings.data
    return (
        not (data.divide_by or data.window or data.patch or data.whiten or data.drop_constant) and data.scale == "none"
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (
        f" and {len(names) - 2} others" if len(names) > 3 else "".join(f", {n}" for n in names[2:])
    )


def _weakest(looks: Sequence[Look], spectra: Sequence[Spectrum]) -> list[str]:
    """Say whose rank bounds the atoms of all."""
    ranked = [look for look in looks if look.rank]
    if not ranked:
        return []
    weakest = min(ranked, key=lambda look: look.rank or 0)
    wanted = max(seen.n_atoms for seen in spectra)
    if (weakest.rank or 0) >= wanted:
        return []
    return [
        f"{weakest.name} has {weakest.samples} samples of rank {weakest.rank}, which bounds n_atoms; others have "
        f"{wanted} directions: give it more samples, leave it out, or set clients.{weakest.name}.n_atoms"
    ]


def _few(looks: Sequence[Look]) -> list[str]:
    """Say where there are too few samples or clients for a run that means something."""
    notes = [
        f"{look.name} has {look.samples} samples: an atom must serve two of them at least, so that a run may not start"
        for look in looks
        if look.rank and (look.samples or 0) < 10
    ]
    return notes + (["there is one client: nothing can be known to be shared"] if len(looks) == 1 else [])


def _suggested(
    looks: Sequence[Look], spectra: Sequence[Spectrum], settings: Settings, files: Sequence[Path], path: str | None
) -> Values:
    declared = settings.data.model_dump(exclude_unset=True, exclude={"source", "path", "center"})
    # Zero-mean samples have a mean too: of n, about 1/n of the energy. Taking that off would only blur exact data.
    off_zero = any((look.mean_share or 0.0) > max(0.01, 10 / (look.samples or 1)) for look in looks)
    path = _common_path(files, settings, path)
    return {
        "n_global": "auto",
        **suggest(spectra),
        "data.source": "files",
        **({"data.path": path} if path else {}),
        "data.center": off_zero,
        **{f"data.{key}": value for key, value in declared.items()},
    }


def _common_path(files: Sequence[Path], settings: Settings, given: str | None) -> str | None:
    """Return the folder or glob that names just these files, such as the shell took apart."""
    folder = files[0].parent
    deep = [set(parts) for parts in zip(*(file.parts for file in files), strict=False)]  # a/d.csv, b/d.csv: */d.csv
    apart = Path(*(parts.pop() if len(parts) == 1 else "*" for parts in deep))
    for path in (*([Path(given)] if given else []), folder, folder / f"*{files[0].suffix}", apart):
        with suppress(DataError):  # hidden files were named
            if client_files(override_settings(settings, {"data.path": str(path)})) == list(files):
                return str(path)
    return None


def _is_client_folder(place: Path) -> bool:
    return place.is_dir() and any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in filter(is_data, place.iterdir()))
