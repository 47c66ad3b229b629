"""The ClientApp: five messages, each one step of PerMA on private data.

Replies hold what ``common.protocol`` lists. They never hold samples, codes or local atoms.
"""

from __future__ import annotations

import functools
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


for _kind, _handle in {
    SCALE: scale,
    INITIALISE: initialise,
    UPDATE: update,
    OPEN: open_round,
    MEASURE: measure,
    FINISH: finish,
}.items():
    app.train(_kind.partition(".")[2])(functools.partial(_answer, _handle))
