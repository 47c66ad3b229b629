"""What ``perdl client`` does: check the data, then take part in one federation."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from flwr.app import Context, Message

from common.errors import FederationError, PerdlError, SettingsError
from common.files import remove_leftovers, write_atomically
from common.heartbeat import signs_of_life
from common.protocol import FINISH, ProtocolError, Scalar, check_name, one_line, unpack
from common.settings import learning_overrides
from perdl_client.node.tls import Credentials


def node_config(
    name: str,
    data: Path | None,
    samples_in: str,
    variable: str | None,
    folder: Path | None,
    min_samples: int = 2,
    overrides: Sequence[str] = (),
    on_doubt: Callable[[str], object] = lambda text: None,
    drop: str | None = None,
) -> dict[str, Scalar]:
    """Return what a node is told at its start, after a look at the data.

    Parameters
    ----------
    name : str
        Stable client id.
    data : Path, optional
        File or folder of samples; without it the server's synthetic data.
    samples_in : {"rows", "columns"}
    variable : str, optional
        Name of the array in ``.npz``, ``.mat`` and HDF5 files.
    folder : Path, optional
        Where state and model go; default ``perdl-clients/NAME``.
    min_samples : int
        Samples that must use an atom before it is sent.
    overrides : sequence of str
        ``key=value`` of learning settings that are this client's own.
    on_doubt : callable (str) -> object
        Told of what is doubtful about the data, and that there are none.
    drop : str, optional
        Names or numbers of columns of tables to leave out, with commas between.

    Raises
    ------
    DataError, SettingsError
        Before any server is asked.
    PerdlError
        If the folder cannot be written.
    """
    try:
        check_name(name)
    except ProtocolError as error:
        raise SettingsError(f"--name: {error}") from None
    told: dict[str, Scalar] = {"name": name, "min-samples": min_samples, **learning_overrides(overrides)}
    place = (folder or Path("perdl-clients") / name).resolve()
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
    if data is not None:
        from perdl_client.data.quality import doubts, facts
        from perdl_client.formats.columns import drop_option
        from perdl_client.formats.read import Orientation, load_samples

        if samples_in not in ("rows", "columns"):
            raise SettingsError(f"--samples-in {samples_in}: must be rows or columns")
        way: Orientation = "columns" if samples_in == "columns" else "rows"
        samples = load_samples(data, samples_in=way, variable=variable, drop=drop)
        option = partial(drop_option, "--drop ", drop)
        turn = f"add --samples-in {'columns' if samples_in == 'rows' else 'rows'}"
        for note in (
            *samples.notes,
            *doubts({name: facts(samples.data, samples.shape, samples.names)}, turn, drop=option),
        ):
            on_doubt(note)
        told |= {"data": str(data.resolve()), "samples-in": samples_in}
        if variable:
            told["variable"] = variable
        if drop:
            told["drop"] = drop
    else:
        on_doubt("no data given: samples are made up, and a server whose data are files refuses them: give --data FILE")
        if match := re.fullmatch(r"client-(\d{1,6})", name):
            # client-3 of a synthetic federation is its third: weak clients are counted by number.
            told["partition-id"] = max(int(match[1]) - 1, 0)
    return told


def run_client(
    server: str,
    told: dict[str, Scalar],
    *,
    stop: threading.Event,
    max_wait: float,
    on_event: Callable[[str], None],
    credentials: Credentials | None = None,
) -> None:
    """Join the server at ``HOST:PORT``, answer until the run is over, leave; in plain text without credentials.

    Raises
    ------
    FederationError
        If the server is not there for ``max_wait`` seconds, or its run ended before its time.
    """
    from common.locks import locked
    from perdl_client.app import app
    from perdl_client.data.memory import Memory, share_memory
    from perdl_client.node.loop import run_node

    failures: list[PerdlError] = []
    memory = Memory()

    def is_last(message: Message) -> bool:
        return message.metadata.message_type == FINISH

    def answer(message: Message, context: Context) -> Message:
        share_memory(context, memory)
        reply = app(message, context)
        if is_last(message):
            failures.extend(_failures(message, reply))
        return reply

    folder = Path(str(told["folder"]))
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
    for failure in failures:
        raise failure


def _failures(last: Message, reply: Message) -> Iterator[PerdlError]:
    """What a client's user must hear of a run's end: why it came before its time, or that there is no model."""
    reason: object = ""
    with suppress(ProtocolError, ValueError):  # if it cannot be read, the reply says so
        reason = unpack(last.content).scalars.get("reason", "")
    if reason:
        yield FederationError(f"the run ended before its time: {one_line(str(reason))}")
    elif reply.has_error():
        yield PerdlError(
            f"the run is over, but this client's own model is not written ({reply.error.reason}); mend that, then let "
            "the server resume the run and start this client again"
        )


def run_stock(server: str, told: dict[str, Scalar], credentials: Credentials | None = None) -> int:
    """Run Flower's own SuperNode until it is interrupted; return its exit code."""
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
