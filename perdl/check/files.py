"""Check clients' data before a run: what each file holds, whether the files fit together, which settings suit them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from common.learning_settings import MIN_SAMPLES
from common.protocol import natural_key
from common.settings import Settings, override_settings, settings_from_flat
from common.words import listed
from perdl.check.profile import ClientProfile, measure, one_feature
from perdl.check.suggest import FEW, Spectrum, suggest
from perdl.check.toml import settings_toml
from perdl_client.data.quality import SampleStatistics, data_warnings
from perdl_client.data.samples import looked_at
from perdl_client.data.sources import client_files, names_of, read_file
from perdl_client.data.units import differ, how_they_differ, pooled, suggested_divide_by, untouched
from perdl_client.data.windows_patches import cut_of
from perdl_client.formats.columns import Absent, drop_option, require_some_have, without
from perdl_client.formats.features import Features
from perdl_client.formats.file_checks import is_data, is_left_behind
from perdl_client.formats.images import IMAGE_SUFFIXES
from perdl_client.terms import DEFAULT_TERMS, TermsError

Floats = NDArray[np.floating]
Values = dict[str, float | int | str | bool]


@dataclass(frozen=True)
class Report:
    """The result of ``perdl check``.

    Parameters
    ----------
    clients : list of ClientProfile
        One profile per client.
    problems : list of str
        Reasons to refuse a run.
    notes : list of str
        What may spoil a result.
    suggested : dict
        Settings by dotted names; empty if there are problems.
    refused : list of str
        Why clients with default terms would not take part in a run of the suggested settings.
    """

    clients: list[ClientProfile]
    problems: list[str]
    notes: list[str]
    suggested: Values
    refused: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain lists and dicts."""
        return asdict(self)

    def toml(self) -> str:
        """Return the suggested settings as a configuration file."""
        nowhere = "# no path: no folder or glob matches exactly these files; give each client its own by --data"
        return settings_toml(self.suggested, {"data": [] if "data.path" in self.suggested else [nowhere]})


def find_clients(places: Sequence[str], settings: Settings) -> list[Path]:
    """Return one file or folder for each client, in the order in which a simulation numbers them.

    Parameters
    ----------
    places : sequence of str
        A single folder or glob is read like ``data.path``: each entry is a client, and a folder of images is one
        client. If there are several places, each file or folder is a client, and so is each match of a glob.
    settings : Settings
        Settings of the run; the table ``data`` is used.

    Raises
    ------
    DataError
        If there is no file.
    """
    if len(places) == 1 and _is_client_folder(Path(places[0])):
        return [Path(places[0])]
    found: list[Path] = []
    # A glob of the shell also matches files that other programs left behind.
    meant = [place for place in places if len(places) == 1 or not is_left_behind(Path(place))]
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
    """Check each client's file, one at a time, and whether the files fit together.

    Parameters
    ----------
    files : sequence of Path
        One file or folder per client.
    settings : Settings
        The table ``data`` says how files are read and how samples are preprocessed.
    path : str, optional
        The ``data.path`` that names these files, for the suggestion.
    on_file : callable (str) -> None, optional
        Called with the client and file that is read next.

    Returns
    -------
    Report
    """
    profiles, problems, spectra = [], [], []
    statistics: dict[str, SampleStatistics] = {}
    read: dict[str, list[str]] = {}  # note on how a file was read -> clients
    features, absent, readable = Features(), Absent(), list[str]()
    for name, file in zip(names_of(files), files, strict=True):
        profile = ClientProfile(name, str(file))
        profiles.append(profile)
        on_file(f"{profile.name}: {file}")
        try:
            lacking = Absent()
            samples = read_file(settings, file, lacking, count_nan=True)
        except DataError as error:
            problems.append(f"{profile.name}: {error}")
            continue
        readable.append(profile.name)
        profile.drop = without(settings.data.drop, lacking)
        for column, errors in lacking.items():
            absent.setdefault(column, []).extend(errors)
        some = looked_at(samples, settings.data.window is not None)
        directions, one, wrong = measure(profile, some, settings)
        if some.data is not samples.data:
            profile.samples = cut_of(settings.data, samples.shape).count(samples.data.shape[1])
        for note in some.notes:
            read.setdefault(note, []).append(profile.name)
        spectra.append(directions)
        if one is not None:
            statistics[profile.name] = one
        wrong.append(features.compare(samples, str(file), settings.data.samples_in))
        problems += [f"{profile.name}: {file}: {one}" for one in wrong if one]
    try:
        require_some_have(absent, len(readable))
    except DataError as error:
        problems.append(f"{readable[0]}: {error}")
    turn = f'set data.samples_in = "{"columns" if settings.data.samples_in == "rows" else "rows"}"'
    drop = partial(drop_option, "-c data.drop=", settings.data.drop)
    large = one_feature({profile.name: profile for profile in profiles}, statistics)
    how = [f"{listed(names)}: {note}" for note, names in read.items()]
    missing = _not_measured(profiles, settings)
    notes = [text for text in (*large, missing, *how, *data_warnings(statistics, turn, drop=drop)) if text]
    cure, divide_by = _cure_of_units(statistics, settings, bool(large))
    if cure and not problems:
        divided = check(files, override_settings(settings, {"data.divide_by": divide_by}), path, on_file)
        notes = list(dict.fromkeys([*notes, cure, *divided.notes]))
        return Report(profiles, problems, notes, divided.suggested, divided.refused)
    suggested = {} if problems else _suggested(profiles, spectra, settings, files, path)
    notes += [*_weakest(profiles, spectra), *_few(profiles), *_why_star(profiles, suggested)]
    return Report(profiles, problems, notes, suggested, _refused(profiles, suggested, len(files)))


def _refused(profiles: Sequence[ClientProfile], suggested: Values, n_clients: int) -> list[str]:
    """Return why clients with default terms would refuse the suggested settings."""
    if not suggested:
        return []
    settings = settings_from_flat({**suggested, "n_clients": n_clients})
    found = []
    for one in profiles:
        learning = settings.for_client(one.name)
        try:
            DEFAULT_TERMS.check_settings(settings, learning, one.name)
            DEFAULT_TERMS.check_size(settings, learning, one.features or 1, one.samples or 0, one.name)
        except TermsError as error:
            found.append(str(error))
    return found


def _cure_of_units(statistics: Mapping[str, SampleStatistics], settings: Settings, large: bool) -> tuple[str, str]:
    """Return a note on features in different units, and the ``data.divide_by`` that brings them to one size."""
    sizes = pooled([one.spreads for one in statistics.values() if one.spreads is not None])
    known = len(sizes) > 0 and not any(one.counting or one.times for one in statistics.values())
    if not known or not untouched(settings.data) or not (large or differ(sizes)):
        return "", ""
    names = next((one.names for one in statistics.values() if one.names), ())
    text = suggested_divide_by(sizes)
    return (
        f"{how_they_differ(sizes, names)}; if they are in different units, divide each by a constant that all clients "
        f"agree on, about its spread: -c {shlex.quote(f'data.divide_by={text}')}; what is suggested does so"
    ), text


def _not_measured(profiles: Sequence[ClientProfile], settings: Settings) -> str:
    """Say how much is missing where it counts as not measured."""
    lacking = {one.name: one for one in profiles if one.missing and one.samples and one.features}
    if settings.data.missing == "refuse" or not lacking:
        return ""
    told = [f"{name} ({one.missing} numbers)" for name, one in lacking.items()]
    return f"missing at {listed(told)}: they count as not measured, and clients learn from the rest"


def _weakest(profiles: Sequence[ClientProfile], spectra: Sequence[Spectrum]) -> list[str]:
    """Name the client whose rank limits the number of atoms."""
    ranked = [profile for profile in profiles if profile.rank]
    if not ranked:
        return []
    weakest = min(ranked, key=lambda profile: profile.rank or 0)
    wanted = max(seen.n_atoms for seen in spectra)
    if (weakest.rank or 0) >= wanted:
        return []
    return [
        f"{weakest.name} has {weakest.samples} samples of rank {weakest.rank}, which bounds n_atoms; others have "
        f"{wanted} directions: give it more samples, leave it out, or set clients.{weakest.name}.n_atoms"
    ]


def _few(profiles: Sequence[ClientProfile]) -> list[str]:
    """Say where there are too few samples or clients for a meaningful run."""
    notes = [
        f"{one.name} has {one.samples} samples: at least {MIN_SAMPLES} of them must use an atom, so it may offer none"
        for one in profiles
        if one.rank and (one.samples or 0) < 10
    ]
    return notes + (["there is one client: nothing can be known to be shared"] if len(profiles) == 1 else [])


def _why_star(profiles: Sequence[ClientProfile], suggested: Values) -> list[str]:
    """Say why the star is suggested."""
    if suggested.get("matching") != "star":
        return []
    fewest = min((one for one in profiles if one.rank), key=lambda one: one.samples or 0)
    return [
        f"{fewest.name} has {fewest.samples} samples for {suggested['n_atoms']} atoms, fewer than {FEW} each: its "
        'first dictionary may be off, and along a chain that spoils the matching of others; matching = "star", which '
        "is suggested, matches each client by itself"
    ]


def _suggested(
    profiles: Sequence[ClientProfile],
    spectra: Sequence[Spectrum],
    settings: Settings,
    files: Sequence[Path],
    path: str | None,
) -> Values:
    declared = settings.data.model_dump(exclude_unset=True, exclude={"source", "path", "center"})
    # The mean of n zero-mean samples holds about 1/n of the energy. Subtracting it would only blur exact data.
    off_zero = any((profile.mean_share or 0.0) > max(0.01, 10 / (profile.samples or 1)) for profile in profiles)
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
    """Return a folder or glob that names exactly these files. The shell may have expanded the user's own."""
    folder = files[0].parent
    deep = [set(parts) for parts in zip(*(file.parts for file in files), strict=False)]  # a/d.csv, b/d.csv -> */d.csv
    apart = Path(*(parts.pop() if len(parts) == 1 else "*" for parts in deep))
    for path in (*([Path(given)] if given else []), folder, folder / f"*{files[0].suffix}", apart):
        with suppress(DataError):  # the user named hidden files
            if client_files(override_settings(settings, {"data.path": str(path)})) == list(files):
                return str(path)
    return None


def _is_client_folder(place: Path) -> bool:
    return place.is_dir() and any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in filter(is_data, place.iterdir()))
