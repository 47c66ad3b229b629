"""A run's folder: its default name, whether it may be used, and a lock that gives it to one process at a time."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from common.errors import PerdlError, SettingsError
from common.locks import locked
from common.settings import Settings, changed
from perdl.results.search import SEARCH, keep_search


@contextmanager
def claimed(
    settings: Settings,
    config: Path,
    output: Path | None,
    overwrite: bool,
    cure: str = "choose another --output, or add --overwrite",
) -> Iterator[Settings]:
    """Return the settings with the folder of the results. It has no other results, and is locked inside the context.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    config : Path
        The configuration. The folder's default name begins with its name; what a search tried to find it is kept.
    output : Path, optional
        Folder of the results; by default ``output`` of the settings, or a new folder in ``runs``.
    overwrite : bool
        Whether results of an earlier run in the folder are replaced.
    cure : str
        What the error advises if the folder holds a run.

    Raises
    ------
    SettingsError
        If the folder holds a run, or another run is writing to it.
    PerdlError
        If the folder cannot be written.
    """
    unnamed = output is None and "output" not in settings.model_fields_set
    first = Path("runs") if unnamed else Path(output or settings.output)
    made = [folder for folder in (first, *first.parents) if not folder.exists()]
    if unnamed:
        output = _new_folder(config.stem)
        made = [output, *made]
    if output is not None:
        settings = changed(settings, output=str(output))
    folder = Path(settings.output)
    try:
        with held(folder):
            _make_room(folder, overwrite, cure)
            keep_search(config, folder)
            yield settings
    finally:
        _remove_unused(made)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder of a run's results.

    Parameters
    ----------
    folder : Path
        The folder, made if missing.

    Raises
    ------
    SettingsError
        If another run is writing to the folder.
    PerdlError
        If the folder cannot be written.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, "run"))
        except OSError as error:
            raise PerdlError(f"cannot write results to {folder}: {error.strerror}; choose another output") from None
        yield


def _new_folder(name: str) -> Path:
    """Make a folder with a new name, and return it."""
    now = time.strftime("%Y%m%d-%H%M%S")
    for i in itertools.count(1):
        folder = Path("runs") / (f"{name}-{now}" if i == 1 else f"{name}-{now}-{i}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            pass  # the error comes when the folder is locked
        return folder
    raise AssertionError("numbers do not end")


def _make_room(folder: Path, overwrite: bool, cure: str) -> None:
    """Remove the results of an earlier run, or raise if they must stay."""
    from perdl_server.checkpoint import BEFORE, NEWEST
    from perdl_server.results import CHOSEN, TRIALS, TUNING

    left = [one for one in ("results.json", "summary.json", TUNING, TRIALS, NEWEST, BEFORE) if (folder / one).exists()]
    if not left:
        return
    if not overwrite and _has_rounds(folder):
        held = "the results of a run:"
        if left[0] in (NEWEST, BEFORE):
            held = f"a run that was cut off: perdl server --resume {folder},"
        raise SettingsError(f"{folder} holds {held} {cure}")
    for name in ("clients", "figures", "tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("results.json", "tables.md", TUNING, TRIALS, CHOSEN, NEWEST, BEFORE):
        (folder / name).unlink(missing_ok=True)


def _has_rounds(folder: Path) -> bool:
    """Whether the run in a folder got past its start. If not, there is nothing to keep."""
    from perdl_server.checkpoint import load_checkpoint
    from perdl_server.results import TRIALS

    if (folder / "results.json").exists():
        return True
    if (folder / TRIALS).exists():
        return (folder / TRIALS).stat().st_size > 0
    try:
        if (folder / "summary.json").exists():
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            return bool(summary["rounds"] > 0 or summary["stop_reason"] in ("rounds", "tolerance"))
        return load_checkpoint(folder).round > 0
    except (OSError, ValueError, KeyError, TypeError, PerdlError):
        return True  # unreadable: it may be worth keeping


def _remove_unused(made: list[Path]) -> None:
    """Remove the folders made for a run that wrote nothing; ``made`` begins with the innermost."""
    with suppress(OSError):
        if made and {path.name for path in made[0].iterdir()} <= {".lock", SEARCH}:
            for name in (".lock", SEARCH):
                (made[0] / name).unlink(missing_ok=True)
        for folder in made:
            folder.rmdir()
