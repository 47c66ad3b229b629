"""A look at clients' data before a run: what each file holds, whether they fit together, which settings suit them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.protocol import natural_key
from common.settings import Settings, override_settings
from perdl.suggest import Spectrum, agreed_constants, spectrum, suggest
from perdl_client.data import client_files
from perdl_client.doubts import doubts, facts
from perdl_client.image_source import IMAGE_SUFFIXES
from perdl_client.preprocess import cut_of, fit_preprocessing
from perdl_client.samples import Samples
from perdl_client.sources import Features, load_samples
from perdl_client.start import mean_share

Floats = NDArray[np.floating]
Values = dict[str, float | int | str | bool]

OTHER_UNITS = "is it in other units"


@dataclass
class Look:
    """What one client's file holds. Numbers that cannot be had are missing: None.

    Attributes
    ----------
    name : str
        Of the client in a simulation of these files.
    file : str
    samples, features : int
        After the cut, if the settings cut.
    shape : list of int
        Of one sample.
    dtype : str
    rms : float
        Root mean square of all finite numbers.
    missing : int
        NaN and infinite numbers. What follows is of the samples without any, as a client would learn from them but for
        the mean.
    constant : int
        Features that are the same in all samples.
    rank : int
        Of the centred samples, 2,000 at most.
    mean_share : float
        Share of the energy that the mean carries.
    largest_feature : int
        From 1: that of the most energy after centring.
    largest_share : float
        Its share of it.
    """

    name: str
    file: str
    samples: int | None = None
    features: int | None = None
    shape: list[int] = field(default_factory=list)
    dtype: str | None = None
    rms: float | None = None
    missing: int | None = None
    constant: int | None = None
    rank: int | None = None
    mean_share: float | None = None
    largest_feature: int | None = None
    largest_share: float | None = None


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
    for place in places:
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
        directions, said, wrong = _measure(look, samples, settings)
        for note in said:
            own_notes.setdefault(note, []).append(look.name)
        if not look.missing:
            deviations.append(samples.data.std(axis=1, dtype=np.float64))
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


def _measure(look: Look, samples: Samples, settings: Settings) -> tuple[Spectrum, list[str], list[str]]:
    """Fill in the numbers of one client; return its spectrum, what to note, and what is wrong."""
    Y, nothing = samples.data, Spectrum(0, 0, 0.0, 0.0)
    look.features, look.samples = Y.shape
    look.shape, look.dtype = list(samples.shape), Y.dtype.name
    finite = np.isfinite(Y)
    look.missing = int(finite.size - np.count_nonzero(finite))
    wrong = [f"has {look.missing} NaN or infinite numbers of {Y.size}; drop or fill them"] if look.missing else []
    largest = float(np.abs(Y).max(initial=0.0, where=finite))
    if largest > np.finfo(Y.dtype).max ** 0.25:
        return nothing, [], [*wrong, f"has values up to {largest:.3g}, too large to compute with: rescale them"]
    look.rms = float(np.sqrt(np.mean(np.square(Y, dtype=np.float64), where=finite))) if finite.any() else None
    if look.missing:
        Y = Y[:, finite.all(axis=0)]
    if Y.shape[1] == 0:
        return nothing, [], wrong
    counters = _counters(Y)
    try:
        Y, channels = _cut(Y, samples.shape, settings, look)
        look.constant = int(np.count_nonzero(Y.max(axis=1) == Y.min(axis=1)))
        look.mean_share = mean_share(Y)
        # As it is suggested to learn from them: scales and whitening depend on whether the mean is off.
        told = settings.data.model_copy(update={"center": True})
        Y = fit_preprocessing(Y, told, look.name, channels).apply(Y)
    except (DataError, SettingsError) as error:
        return nothing, [], [*wrong, str(error)]
    seen = spectrum(Y)
    look.rank = seen.rank
    if seen.rank == 0:
        which = "has one sample only" if Y.shape[1] == 1 else "all its samples are the same"
        return seen, [], [*wrong, f"{which}, so nothing can be learnt from its differences"]
    variances = Y.var(axis=1, dtype=np.float64)
    top = int(np.argmax(variances))
    look.largest_feature, look.largest_share = top + 1, float(variances[top] / variances.sum())
    notes = [
        f"{_feature(samples, j)} goes up or down by whole numbers from sample to sample: times? Take it out"
        for j in counters
    ]
    if look.largest_share > 0.8 and len(Y) > 2 and not counters:
        notes.append(
            f"{_feature(samples, top)} carries most of the energy, and the others next to nothing; "
            f"{OTHER_UNITS}, or no measurement at all?"
        )
    return seen, notes, wrong


def _cut(Y: Floats, shape: tuple[int, ...], settings: Settings, look: Look) -> tuple[Floats, int]:
    """Cut samples as a client does; return the pieces and how many channels they have."""
    cut = cut_of(settings.data, shape)
    Y = cut.apply(Y.T).T
    look.features, look.samples, look.shape = *Y.shape, list(cut.piece)
    return Y, cut.channels


def _feature(samples: Samples, j: int) -> str:
    return f"feature {j + 1}" + (f" ({samples.names[j]!r})" if j < len(samples.names) else "")


def _counters(Y: Floats) -> list[int]:
    """Features that are whole numbers which only rise, or only fall, over eight samples or more; no row numbers."""
    if Y.shape[1] < 8:
        return []

    def counts(rows: Floats) -> NDArray[np.bool_]:
        steps = np.diff(rows, axis=1)
        one_way = (steps > 0).all(axis=1) | (steps < 0).all(axis=1)
        one_way &= ~(steps == 1).all(axis=1)  # of those perdl_client.doubts tells
        counted: NDArray[np.bool_] = one_way & (rows == np.round(rows)).all(axis=1)
        return counted

    likely = np.flatnonzero(counts(Y[:, :8]))  # few are left for a look at all samples
    return [int(j) for j in likely if counts(Y[j : j + 1])[0]]


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
    return place.is_dir() and any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in place.iterdir())
