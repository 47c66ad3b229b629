"""A local page that shows a server's run as it proceeds. It reads the run's folder and changes nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import SettingsError
from common.protocol import natural_key
from perdl.monitoring.jsonl import Tail, identity
from perdl.report.page import REPORT

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from common.settings import Settings

_POINTS = 300
"""Largest number of points of a curve; more could not be seen."""
_LINES = 40
"""Lines of the log that are shown."""
_LAST_LOOK = 2.5
"""Seconds to wait for an open page to ask how the run ended, and again for it to take the report."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Board:
    """The content of the page, read from the files of a run.

    Parameters
    ----------
    settings : Settings
        Settings of the run; ``output`` is its folder.
    log : Path
        The server's log as JSON lines.
    """

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings, self._folder = settings, Path(settings.output)
        self._tails = {name: Tail(self._folder / f"{name}.jsonl") for name in ("rounds", "metrics")}
        self._log = Tail(log)
        self._summary, self._former = self._folder / "summary.json", identity(self._folder / "summary.json")
        self._rounds: dict[int, list[float | None]] = {}
        self._clients: dict[str, dict[str, Any]] = {}
        self._lines: deque[dict[str, str]] = deque(maxlen=_LINES)
        self._facts: dict[str, Any] = {}
        self._asked = -np.inf
        self.closing = False
        """Whether the server is about to end; all files are written."""
        self.told_the_end = threading.Event()
        self.gave_the_report = threading.Event()

    @property
    def watched(self) -> bool:
        """Whether a page asked just now."""
        return time.monotonic() - self._asked < 3.0

    def state(self) -> dict[str, Any]:
        """Return all that the page shows."""
        self._asked = time.monotonic()
        summary = self._ended()  # read first: all other files are complete once it exists
        closing = self.closing
        ended = self._why(summary) if summary else "the server ended without results" if closing else ""
        self._read()
        rounds = [self._rounds[t] for t in sorted(self._rounds)]
        shown = np.unique(np.linspace(0, max(len(rounds) - 1, 0), min(len(rounds), _POINTS)).astype(int))
        if closing:
            self.told_the_end.set()
        return {
            "title": self._folder.name,
            "rounds": max(self._rounds, default=0),
            "most_rounds": self._settings.rounds,
            "n_clients": self._settings.n_clients,
            "columns": ["round", "change", "error min", "error median", "error max", "consensus", "clients"],
            "curve": [rounds[i] for i in shown],
            "clients": [self._clients[name] for name in sorted(self._clients, key=natural_key)],
            "log": list(self._lines),
            "ended": ended,
            "closing": closing,
            "report": self.report.exists() and bool(ended),
            "notes": summary.get("warnings", []),
            **self._facts,
        }

    @property
    def report(self) -> Path:
        """Path of the report, which stays after the run."""
        return self._folder / REPORT

    def _read(self) -> None:
        for row in self._tails["rounds"].new_rows():
            error, consensus = row.get("error_before_update") or {}, row.get("consensus") or {}
            values = [row["change"], error.get("min"), error.get("median"), error.get("max"), consensus.get("min")]
            self._rounds[row["round"]] = [row["round"], *values, row["clients"]]
            self._facts = {"seconds": row["seconds"], "bytes": row["bytes"]}
        for row in self._tails["metrics"].new_rows():
            self._seen(row["client"]).update(round=row["round"], error=row.get("error_before_update"))
        for line in self._log.new_rows():
            text, client = str(line.get("text", "")), str(line.get("client", ""))
            if line.get("logger") == "perdl.server":
                if client:
                    self._seen(client)
                if client or line.get("level") != "info":
                    moment = str(line.get("time", ""))
                    self._lines.append(
                        {"time": moment[11:19], "level": str(line.get("level")), "client": client, "text": text}
                    )

    def _seen(self, client: str) -> dict[str, Any]:
        return self._clients.setdefault(client, {"name": client, "round": 0, "error": None})

    def _ended(self) -> dict[str, Any]:
        """The summary of the run; empty until it ends."""
        if identity(self._summary) in (None, self._former):
            return {}
        return dict(json.loads(self._summary.read_text(encoding="utf-8")))

    def _why(self, summary: dict[str, Any]) -> str:
        reason = str(summary.get("stop_reason"))
        tolerance = f"no atom of D^g moved more than {self._settings.tolerance:g}"
        return {"rounds": "all rounds are done", "tolerance": tolerance}.get(reason, reason)


def make_app(board: Board) -> Starlette:
    """Return the web application: the page, its files and ``/state.json``.

    It only answers GET, and only under the names of this machine.

    Parameters
    ----------
    board : Board
        The content of the page.
    """
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import BaseRoute, Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    class Headers:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *extra]}
                await send(message)

            await self._app(scope, receive, sent)

    async def state(request: Request) -> JSONResponse:  # async, so that requests run one at a time
        return JSONResponse(board.state())

    async def report(request: Request) -> Response:
        if not board.report.exists():
            return PlainTextResponse("there is no report yet", 404)
        return FileResponse(board.report, background=BackgroundTask(board.gave_the_report.set))

    files = StaticFiles(directory=Path(__file__).parent / "static", html=True)
    # Stops DNS rebinding: a foreign site whose name resolves to this machine sends another host name.
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)
    routes: list[BaseRoute] = [
        Route("/state.json", state, methods=["GET"]),
        Route("/report.html", report, methods=["GET"]),
    ]
    routes = [*routes, Mount("/", files)]
    return Starlette(routes=routes, middleware=[Middleware(Headers), hosts])


@contextmanager
def dashboard(settings: Settings, log: Path, port: int = 0) -> Iterator[str]:
    """Serve the page on loopback while the context lasts.

    Parameters
    ----------
    settings : Settings
        Settings of the run; ``output`` is its folder.
    log : Path
        The server's log as JSON lines.
    port : int
        Port to listen on; 0 takes a free one.

    Yields
    ------
    str
        The page's address.

    Raises
    ------
    SettingsError
        If the port is taken.
    """
    import uvicorn

    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise SettingsError(
            f"--dashboard-port {port}: {error.strerror}; choose another, or leave it out for a free one"
        ) from None
    board = Board(settings, log)
    config = uvicorn.Config(
        make_app(board), log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="dashboard", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        board.closing = True
        if board.watched and board.told_the_end.wait(_LAST_LOOK):
            time.sleep(0.1)  # until the answer is sent
            if board.report.exists():
                board.gave_the_report.wait(_LAST_LOOK)
        server.should_exit = True
        thread.join(2.0)
        listener.close()
