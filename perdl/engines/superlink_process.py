"""Flower's SuperLink in a process of its own: ``python -m perdl.engines.superlink_process PARENT OPTION...``.

It ends with its parent, even after kill -9. And it lets requests pass by the parts of the SuperLink that do nothing for
them: each is a Starlette middleware that costs the SuperLink half a millisecond to a millisecond, and a client's round
is about eighteen requests.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from flwr.superlink import main as superlink
from flwr.superlink.cli.flower_superlink import flower_superlink

Scope = dict[str, Any]


def _of_control(scope: Scope) -> bool:
    return str(scope["path"]).startswith("/v1/control/")


def _of_fleet(scope: Scope) -> bool:
    return str(scope["path"]).startswith("/v1/fleet/")


def _of_logged_fleet(scope: Scope) -> bool:
    return _of_fleet(scope) and scope["app"].state.fleet_event_log_plugin is not None


WANTED: dict[str, Callable[[Scope], bool]] = {
    "ControlSensitiveResponseMiddleware": _of_control,
    "ControlAuthenticationMiddleware": _of_control,
    "ControlLicenseMiddleware": _of_control,
    "ControlEventLogMiddleware": _of_control,
    "NodeAuthMiddleware": _of_fleet,
    "FleetEventLogMiddleware": _of_logged_fleet,
}
"""By middleware of Flower 1.42: the requests for which it does something. All begin by looking at the path."""


def pass_by() -> None:
    """Let requests pass by the middlewares that do nothing for them. What is not listed stays as Flower has it."""
    for name, wanted in WANTED.items():
        kind: Any = getattr(superlink, name, None)
        if kind is not None:
            kind.__call__ = _where(wanted, kind.__call__)


def _where(wanted: Callable[[Scope], bool], original: Callable[..., Any]) -> Callable[..., Any]:
    async def call(self: Any, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not wanted(scope):
            await self.app(scope, receive, send)
        else:
            await original(self, scope, receive, send)

    return call


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run Flower's command with the options that follow the parent's process id."""
    threading.Thread(target=_end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    sys.argv[0] = "flower-superlink"
    pass_by()
    flower_superlink()


if __name__ == "__main__":
    main()
