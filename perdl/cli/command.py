"""What all commands share: a failure ends with one line and an exit code, and results have a folder."""

from __future__ import annotations

import difflib
import functools
import gc
import glob
import inspect
import logging
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec

import click
import typer
from typer.core import TyperCommand, TyperGroup

from common.errors import INTERRUPTED, PerdlError, SettingsError
from common.logs import LOG, start_log
from common.settings import Settings, load_settings, parse_override
from common.settings_errors import all_names
from common.words import listed
from perdl.monitoring.output import Output

P = ParamSpec("P")

out = Output()
err = Output(stderr=True)
_folder: Path | None = None
"""Folder of this command's results, once known."""


class Command(TyperCommand):
    """A command that recognises settings given as options or arguments, and says how to give them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; errors say what was probably meant.

        Parameters
        ----------
        ctx : click.Context
            Context of the command.
        args : list of str
            Words of the command line.
        """
        try:
            return super().parse_args(ctx, list(args))  # click takes words off the list
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            likely = [one for one in all_names(Settings) if one == name or one.rpartition(".")[2] == name]
            if likely:
                text = f"No such option: {error.option_name}; it is a setting: -c {likely[0]}=VALUE"
                raise click.NoSuchOption(error.option_name, text, ctx=ctx) from None
            raise
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                if text := self._about_data(ctx, args):
                    raise click.UsageError(text, ctx) from None
                raise click.UsageError(
                    f"{error.message}; a setting is -c key=value, without spaces around =", ctx
                ) from None
            raise

    def _about_data(self, ctx: click.Context, args: list[str]) -> str:
        """Say how this command takes data, if its words are too many because some are; else return nothing."""
        options, more, _ = self.make_parser(ctx).parse_args(list(args))
        known = self.name in ("simulate", "server", "client", "reconstruct")
        if not known or any(word.endswith("=") for word in args) or not any(map(_is_data, more)):
            return ""
        words = [word for word in (options.get("config"), options.get("data"), *more) if isinstance(word, str)]
        paths = [word for word in words if _is_data(word)]
        return (
            f"{listed(paths)} {'are' if len(paths) > 1 else 'is'} data; {how_to_give(_pattern(paths), self.name or '')}"
        )

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Let the screen break the lines of a paragraph, not the source.

        Parameters
        ----------
        ctx : click.Context
            Of the command.
        formatter : click.HelpFormatter
            Takes the text.
        """
        self.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(self.help or ""))
        super().format_help(ctx, formatter)


class Commands(TyperGroup):
    """The commands of ``perdl``."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command. Typer and some versions of click both suggest a similar one; drop the repetition.

        Parameters
        ----------
        ctx : click.Context
            Context of the group.
        args : list of str
            Words of the command line.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            text = re.sub(r"( Did you mean [^?]*\?)\1+", r"\1", error.format_message())
            raise click.UsageError(text, ctx) from None


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that a shell may complete.

    Parameters
    ----------
    incomplete : str
        The word typed so far.
    """
    return [name for name in sorted(presets()) if name.startswith(incomplete)]


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Make a command end with one line and an exit code, without a traceback, if a user can cure the failure.

    Parameters
    ----------
    function : callable
        The function of the command.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        sys.unraisablehook, hook = _interrupt_again, sys.unraisablehook
        try:
            if kwargs.get("log"):
                _log_to(Path(str(kwargs["log"])).resolve())
            level = logging.ERROR if kwargs.get("quiet") else logging.WARNING
            _log_from(logging.INFO if kwargs.get("verbose") else level)
            function(*args, **kwargs)
        except PerdlError as error:
            err.print(f"perdl: {error}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            err.print(f"perdl: {error.filename or 'system'}: {error.strerror or error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            kept = ("summary.json", "results.json", "tuning.json")
            saved = _folder is not None and any((_folder / one).exists() for one in kept)
            err.print(f"perdl: interrupted{f'; what was done is in {_folder}' if saved else ''}", highlight=False)
            traceback.clear_frames(error.__traceback__)  # frees what the frames hold, such as a pool's semaphores
            gc.collect()
            err.file.flush()
            out.file.flush()
            os._exit(INTERRUPTED)  # sys.exit would wait for clients' threads, which may compute for long
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            sys.unraisablehook = hook

    return wrapped


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt that Python dropped, as it does in a finalizer or in the callback of an import lock."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    # Wait until the main thread has left the callback. Only a real signal wakes it if it sleeps by then.
    again = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    again.daemon = True
    again.start()


def results_go_to(folder: Path) -> None:
    """Note the folder of this command's results: an interrupt names it.

    Parameters
    ----------
    folder : Path
        Where the results go.
    """
    global _folder
    _folder = folder


@contextmanager
def prepared(
    config: str, override: list[str], output: Path | None, seed: int | None, overwrite: bool, command: str = "simulate"
) -> Iterator[Settings]:
    """Return the settings of a run. Its folder has no other results, and stays locked inside the context.

    Parameters
    ----------
    config : str
        TOML file or preset.
    override : list of str
        Settings as ``key=value``; they win over the file.
    output : Path, optional
        Folder of the results.
    seed : int, optional
        Seed of the run.
    overwrite : bool
        Whether results of an earlier run in the folder are replaced.
    command : str
        The command, for the error about data in place of a configuration.

    Raises
    ------
    SettingsError
        If a setting is wrong, or the folder holds a run.
    """
    from perdl.engines.claim import claimed

    for one in override:  # first, because `-c rounds 5` makes 5 the configuration, and that error would hide this one
        parse_override(one)
    path = find_config(config, command)
    changes = [*override, *([f"seed={seed}"] if seed is not None else [])]
    with claimed(load_settings(path, changes), path, output, overwrite) as settings:
        results_go_to(Path(settings.output))
        yield settings


_MAY_BE_TOML = (".toml", "", ".txt", ".conf", ".cfg", ".ini", ".json", ".yaml", ".yml")
"""Ends of names of configurations, and of files that are mistaken for one: all others are data."""


def find_config(name: str, command: str = "simulate") -> Path:
    """Return a configuration file.

    Parameters
    ----------
    name : str
        Path of a TOML file, or the name of one of perdl's presets.
    command : str
        The command that wants it, for the error.

    Raises
    ------
    SettingsError
        If there is neither; it lists the presets, or says how data are given.
    """
    if Path(name).is_file() and Path(name).suffix.lower() in _MAY_BE_TOML:
        return Path(name)
    there = presets()
    stem = name.removeprefix("configs/").removesuffix(".toml") if name.startswith("configs/") else name
    if stem in there:
        return there[stem]
    if Path(name).exists() or glob.glob(name):
        kind = "is a folder" if Path(name).is_dir() else "is data" if Path(name).is_file() else "names files"
        raise SettingsError(f"{name} {kind}, not a configuration; {how_to_give(name, command)}")
    near = difflib.get_close_matches(stem, there, n=1)
    hint = f"did you mean {near[0]}? " if near and not name.endswith(".toml") else ""
    raise SettingsError(f"there is no configuration {name}; {hint}presets are {', '.join(sorted(there))}")


def how_to_give(path: str, command: str) -> str:
    """Say how data are given to a command.

    Parameters
    ----------
    path : str
        A file, a folder, or a glob.
    command : str
        The command.
    """
    file = shlex.quote(path) if Path(path).is_file() else "FILE"
    if command == "server":
        return (
            "a server takes none: start perdl server files ..., and each client with a file of its own: perdl client "
            f"--data {file} ..."
        )
    simulate = f"perdl simulate files -c {shlex.quote(f'data.path={path}')}"
    whole = " (in quotes, else the shell expands it)" if glob.has_magic(path) else ""
    if command in ("client", "reconstruct"):
        takes = f"{command} takes one file{f' (--data {file})' if command == 'client' else ''}"
        return f"{takes}, or a folder of files that are joined; to learn from each{whole}: {simulate}"
    return f"to learn from what {'they hold' if whole else 'it holds'}{whole}: {simulate}"


def _is_data(word: str) -> bool:
    path = Path(word)
    return path.exists() and word not in presets() and (path.is_dir() or path.suffix.lower() not in _MAY_BE_TOML)


def _pattern(paths: list[str]) -> str:
    """Return the glob that a shell has probably expanded to these paths; a path alone is itself."""
    if len(paths) == 1:
        return paths[0]
    folders, suffixes = {Path(path).parent for path in paths}, {Path(path).suffix for path in paths}
    where = folders.pop() if len(folders) == 1 else Path("*")
    return str(where / f"*{suffixes.pop() if len(suffixes) == 1 else ''}")


def presets() -> dict[str, Path]:
    """Return perdl's own TOML files by name."""
    here = Path(__file__).parents[1]
    return {path.stem: path for root in (here.parent / "configs", here / "configs") for path in root.glob("*.toml")}


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("a").close()  # fail now if it cannot be written
    os.environ[LOG] = str(path)


def _log_from(level: int) -> None:
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.INFO if level == logging.INFO else logging.ERROR)
    start_log(level)
