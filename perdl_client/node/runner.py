"""The work of ``perdl client``: check the data, then take part in one federation."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message

from common.errors import DataError, FederationError, PerdlError, SettingsError
from common.evaluation import evaluation_of
from common.files import remove_leftovers, write_atomically
from common.heartbeat import signs_of_life
from common.mask import read_secret
from common.privacy_settings import MODES
from common.protocol import FINISH, ProtocolError, Scalar, check_name, one_line, unpack
from common.settings import learning_overrides
from perdl_client.learning.device import CPU, Device
from perdl_client.ledger import ledger_path, read_ledger
from perdl_client.node.tls import Credentials
from perdl_client.terms import Terms, load_terms

if TYPE_CHECKING:
    from perdl_client.data.memory import Memory


def node_config(
    name: str,
    data: Path | None,
    samples_in: str,
    variable: str | None,
    folder: Path | None,
    min_samples: int | None = None,
    overrides: Sequence[str] = (),
    on_warning: Callable[[str], object] = lambda text: None,
    drop: str | None = None,
    missing: str = "refuse",
    terms: Path | None = None,
    ledger: Path | None = None,
    secret: Path | None = None,
    record: bool = False,
    privacy: str | None = None,
) -> tuple[dict[str, Scalar], Memory]:
    """Check a client's data. Return the node's settings, and the memory that holds the samples.

    Parameters
    ----------
    name : str
        Stable client id.
    data : Path, optional
        File or folder of samples. Without it the run must use synthetic data.
    samples_in : {"rows", "columns"}
        Orientation of the file.
    variable : str, optional
        Name of the array in ``.npz``, ``.mat`` and HDF5 files.
    folder : Path, optional
        Folder of state and model; default ``perdl-clients/NAME``.
    min_samples : int, optional
        Samples that must use an atom before it is sent; default as the terms say.
    overrides : sequence of str
        ``key=value`` of this client's own learning settings.
    on_warning : callable (str) -> object
        Called with each warning of a possible problem, and if no data are given.
    drop : str, optional
        Names or numbers of columns to leave out, separated by commas.
    missing : {"refuse", "mask"}
        Whether NaN and empty cells of tables mark what was not measured.
    terms : Path, optional
        TOML file of what the client accepts, see :class:`.terms.Terms`; default the terms' defaults.
    ledger : Path, optional
        File in which it counts what its data served; default beside the data.
    secret : Path, optional
        File of the secret that all clients of a masked run share.
    record : bool
        Whether to keep a record of what leaves, for ``perdl audit``.
    privacy : str, optional
        The only mode of privacy in which the client takes part.

    Raises
    ------
    DataError, SettingsError
        If the data or the settings cannot be used.
    PerdlError
        If the folder cannot be written.
    """
    from perdl_client.data.memory import Memory

    try:
        check_name(name)
    except ProtocolError as error:
        raise SettingsError(f"--name: {error}") from None
    place = (folder or Path("perdl-clients") / name).resolve()
    accepted = own_terms(terms, min_samples)
    told: dict[str, Scalar] = {"name": name, "terms": accepted.model_dump_json(), **learning_overrides(overrides)}
    if told.get("device", CPU.name) != CPU.name:
        Device(str(told["device"]), "float32", name)  # fails before the data are read if it is not there
    owner = place / "client.txt"
    try:
        if owner.exists() and (former := owner.read_bytes()) != name.encode():
            raise SettingsError(
                f"{place} is the folder of {one_line(former.decode(errors='replace'), 100)}, with its state and model: "
                f"give {name} a --folder of its own"
            )
        write_atomically(owner, lambda file: file.write(name.encode()))
    except OSError as error:
        raise PerdlError(f"cannot write to {place}: {error.strerror}; choose another --folder") from None
    told["folder"] = str(place)
    if record:
        told["record"] = True
    if privacy is not None:
        if privacy not in MODES:
            raise SettingsError(f"--privacy {privacy}: must be {', '.join(MODES[:-1])} or {MODES[-1]}")
        told["privacy"] = privacy
    if secret is not None:
        read_secret(secret)
        told["secret"] = str(secret.resolve())
    memory = Memory()
    if data is not None:
        from common.blocks import in_memory
        from common.data_settings import DataSettings
        from perdl_client.data.quality import data_warnings, sample_statistics
        from perdl_client.data.samples import looked_at
        from perdl_client.data.sources import read_client_file
        from perdl_client.formats.columns import drop_option
        from perdl_client.formats.features import Orientation
        from perdl_client.formats.read import Missing

        if samples_in not in ("rows", "columns"):
            raise SettingsError(f"--samples-in {samples_in}: must be rows or columns")
        way: Orientation = "columns" if samples_in == "columns" else "rows"
        if missing not in ("refuse", "mask"):
            raise SettingsError(f"--missing {missing}: must be refuse or mask")
        taken: Missing = "mask" if missing == "mask" else "refuse"
        try:
            samples = read_client_file(
                data, DataSettings(), "float64", samples_in=way, variable=variable, drop=drop, missing=taken
            )
        except DataError as error:  # settings of the table data are options here
            raise DataError(str(error).replace('set data.missing = "mask"', "add --missing mask")) from None
        turn = f"add --samples-in {'columns' if samples_in == 'rows' else 'rows'}"
        some = looked_at(samples)
        statistics = sample_statistics(in_memory(some.data), samples.shape, samples.names)
        option = partial(drop_option, "--drop ", drop)
        for note in (*some.notes, *data_warnings({name: statistics}, turn, drop=option)):
            on_warning(note)
        memory.hold(samples)
        counted = (ledger or ledger_path(data.resolve(), place)).resolve()
        read_ledger(counted)  # a damaged one is told before the client joins
        if ledger is None and counted.parent != data.resolve().parent:
            on_warning(f"{data.resolve().parent} cannot be written: what the data served is counted in {counted}")
        told["ledger"] = str(counted)
        told |= {"data": str(data.resolve()), "samples-in": samples_in}
        if variable:
            told["variable"] = variable
        if drop:
            told["drop"] = drop
        if missing != "refuse":
            told["missing"] = missing
    else:
        on_warning("no data given: samples are synthetic; a server whose data are files refuses them: give --data FILE")
        if match := re.fullmatch(r"client-(\d{1,6})", name):
            # In a synthetic federation client-3 is the third client: weak clients are the first ones.
            told["partition-id"] = max(int(match[1]) - 1, 0)
    return told, memory


def own_terms(file: Path | None, min_samples: int | None = None) -> Terms:
    """Return a client's terms.

    Parameters
    ----------
    file : Path, optional
        TOML file; without it the defaults apply.
    min_samples : int, optional
        Wins over the file's.
    """
    return load_terms(file, {} if min_samples is None else {"min_samples": min_samples})


def run_client(
    server: str,
    told: dict[str, Scalar],
    memory: Memory,
    *,
    stop: threading.Event,
    max_wait: float,
    on_event: Callable[[str], None],
    credentials: Credentials | None = None,
) -> str:
    """Join a server, answer until the run or the search of settings is over, leave.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    told : dict
        The node's settings, see :func:`node_config`.
    memory : Memory
        Holds the samples of the client's file.
    stop : threading.Event
        Set it to leave.
    max_wait : float
        Seconds to wait while the server cannot be reached.
    on_event : callable (str) -> None
        Called with news in words.
    credentials : Credentials, optional
        Certificate and keys for TLS; plain text without them.

    Returns
    -------
    str
        What came of it, in words.

    Raises
    ------
    FederationError
        If the server cannot be reached for ``max_wait`` seconds, or its run ended early.
    """
    from common.locks import locked
    from perdl_client.app import app
    from perdl_client.data.memory import share_memory
    from perdl_client.node.loop import run_node

    failures: list[PerdlError] = []
    news: list[str] = []
    folder = Path(str(told["folder"]))
    result = f"its model is in {folder}"

    def is_last(message: Message) -> bool:
        return message.metadata.message_type == FINISH

    def answer(message: Message, context: Context) -> Message:
        nonlocal result
        share_memory(context, memory)
        reply = app(message, context)
        if is_last(message):
            failures.extend(_failures(message, reply))
            news.extend(_gain(reply))
            result = _search(message, memory) or result
        return reply

    with locked(folder, "client"), signs_of_life(folder) as beat:
        for place in (folder, folder / "state"):
            remove_leftovers(place)
        run_node(
            server,
            answer,
            told,
            stop=stop,
            is_last=is_last,
            max_wait=max_wait,
            root_certificates=credentials.root_certificates if credentials else None,
            authentication_keys=credentials.keys if credentials else None,
            on_event=on_event,
            on_beat=beat,
            memory=folder / "node",
        )
    for text in news:
        on_event(text)
    for failure in failures:
        raise failure
    return result


def _gain(reply: Message) -> Iterator[str]:
    """Yield what federating did to this client's error, if it held samples out."""
    evaluation = None if reply.has_error() else evaluation_of(unpack(reply.content).scalars)
    if evaluation is not None:
        yield evaluation.in_words()


def _search(last: Message, memory: Memory) -> str:
    """Return what a search of settings took from this client; empty if the last message ends a run."""
    with suppress(ProtocolError, ValueError):
        trials = unpack(last.content).scalars.get("trials")
        if isinstance(trials, int):
            return (
                f"the server chose settings in {trials} short runs, which showed it {len(memory.ways)} first "
                "dictionaries of this client; there is no model: start it again for the run itself"
            )
    return ""


def _failures(last: Message, reply: Message) -> Iterator[PerdlError]:
    """Yield what the user must know after the last message: why the run ended early, or that there is no model."""
    reason: object = ""
    with suppress(ProtocolError, ValueError):  # if the message cannot be read, the reply is an error
        reason = unpack(last.content).scalars.get("reason", "")
    if reason:
        yield FederationError(f"the run ended before its time: {one_line(str(reason))}")
    elif reply.has_error():
        yield PerdlError(
            f"the run is over, but this client's own model is not written ({reply.error.reason}); mend that, then let "
            "the server resume the run and start this client again"
        )


def run_stock(server: str, told: dict[str, Scalar], credentials: Credentials | None = None) -> int:
    """Run Flower's own SuperNode until it is interrupted, and return its exit code.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    told : dict
        The node's settings, see :func:`node_config`.
    credentials : Credentials, optional
        Certificate and keys for TLS; plain text without them.
    """
    from perdl_client.node.supernode import stock_command

    command, environment = stock_command(server, told, certs=credentials.folder if credentials else None)
    process = subprocess.Popen(command, env=environment)
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
