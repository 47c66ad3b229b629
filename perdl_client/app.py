"""The ClientApp: five messages, each one step of PerMA on private data.

Replies hold what ``common.protocol`` lists. They never hold samples, codes or local atoms.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from common.errors import PerdlError
from common.logs import about, join_log, log_file, tell_of_disk
from common.protocol import (
    FINISH,
    INITIALISE,
    MEASURE,
    OPEN,
    QUESTIONS,
    SCALE,
    UPDATE,
    Payload,
    check_run,
    one_line,
    unpack,
)
from common.simulation import is_simulation
from common.threads import one_blas_thread
from perdl_client.answers.finish import finish, measure
from perdl_client.answers.initialise import initialise, scale
from perdl_client.answers.update import open_round, update
from perdl_client.identity import Identity
from perdl_client.record import record

_log = logging.getLogger("perdl.client")

app = ClientApp()


@app.train(SCALE.partition(".")[2])
def on_scale(message: Message, context: Context) -> Message:
    """Answer with the sums from which the server computes scales that all clients agree on.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(scale, message, context)


@app.train(INITIALISE.partition(".")[2])
def on_initialise(message: Message, context: Context) -> Message:
    """Answer with the used atoms of D_i^(0) and their usage.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(initialise, message, context)


@app.train(UPDATE.partition(".")[2])
def on_update(message: Message, context: Context) -> Message:
    """Answer with this client's global atoms after one local update.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(update, message, context)


@app.train(OPEN.partition(".")[2])
def on_open(message: Message, context: Context) -> Message:
    """Answer with what the server needs of this client to open a round's sum (``privacy = "aggregated"``).

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(open_round, message, context)


@app.train(MEASURE.partition(".")[2])
def on_measure(message: Message, context: Context) -> Message:
    """End a trial of a search of settings: answer with the error of held-out samples, and forget the trial.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(measure, message, context)


@app.train(FINISH.partition(".")[2])
def on_finish(message: Message, context: Context) -> Message:
    """Write this client's own model and answer with scalars.

    Parameters
    ----------
    message : flwr.app.Message
        The server's message.
    context : flwr.app.Context
        This node's context, which keeps the client's state.
    """
    return _answer(finish, message, context)


def _answer(handle: Callable[[Payload, Context], RecordDict], message: Message, context: Context) -> Message:
    """Run a handler. Of an unforeseen exception only the type is sent: its text may hold data."""
    began, run = time.monotonic(), ""
    join_log()
    with ExitStack() as stack:  # failures are logged with the client's name too
        try:
            payload = unpack(message.content, QUESTIONS.get(message.metadata.message_type, ()))
            run = check_run(payload.scalar("run", str))
            known = {key: payload.scalars[key] for key in ("run", "round") if key in payload.scalars}
            stack.enter_context(about(client=Identity.of(context.node_config).name, **known))
            with one_blas_thread():
                answer = Message(handle(payload, context), reply_to=message)
            _record(answer, message, context, run)
            _log.info("answered %s in %.3f s", message.metadata.message_type, time.monotonic() - began)
            return answer
        except PerdlError as error:
            _log.info("%s", error)
            reason = one_line(str(error))
        except OSError as error:  # such as a full disk: the server may ask for this round again
            tell_of_disk(error)
            where = f"{error.filename}: " if error.filename and is_simulation() else ""
            reason = f"its own disk or folder fails it: {where}{error.strerror or type(error).__name__}"
        except Exception as error:
            _log.exception("unforeseen failure")
            reason = f"{type(error).__name__} (details are in {_where_to_read()})"
    answer = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    with suppress(OSError):  # it holds no data
        _record(answer, message, context, run)
    return answer


def _record(answer: Message, message: Message, context: Context, run: str) -> None:
    """Write down what is about to leave, if the client keeps a record. Without it nothing leaves."""
    if (folder := Identity.of(context.node_config).record_folder()) is not None:
        record(folder, answer, message.metadata.message_type, run)


def _where_to_read() -> str:
    """Name the log. A deployed client tells the server none of its paths."""
    return (log_file() if is_simulation() else None) or "the client's own log"
