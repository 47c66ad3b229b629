"""Mistakes with servers and clients."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from typer.testing import CliRunner

from common.protocol import INITIALISE, pack
from common.settings import settings_from_values
from perdl.cli.app import app
from perdl.engines.in_process import InProcessGrid
from perdl_client.app import app as client_app
from perdl_server.app import run as serve
from wrong import Mistake, Said, command, draw, python


def client(*words: str, name: str = "ada", insecure: bool = True) -> Said:
    return command("client", "--name", name, "--wait", "0.1", *(["--insecure"] if insecure else []), *words)


def server(*words: str) -> Said:
    return command("server", "synthetic", "--output", "run", *words)


@contextmanager
def listening(answer: bytes = b"") -> Iterator[str]:
    """Somebody else at a port of this machine; a web server if there is an answer."""
    if not answer:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            yield f"127.0.0.1:{sock.getsockname()[1]}"
        return

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


def nobody() -> Said:
    with listening() as address:
        pass
    return client("--server", address)


def somebody_else() -> Said:
    with listening(b"<html>") as address:
        return client("--server", address)


def port_taken() -> Said:
    with listening() as address:
        return server("--insecure", "--address", address)


def orientation_at_the_server() -> Said:
    with listening() as address:  # so that it ends at once
        words = ["server", "files", "--output", "run", "--insecure", "--address", address]
        return _told([*words, "-c", "data.samples_in=columns"])


def numbered_samples() -> Said:
    X = draw("ada")
    np.save("ada.npy", np.c_[np.arange(len(X)), X])
    with listening() as address:
        pass
    words = ["client", "--name", "ada", "--insecure", "--server", address, "--wait", "0", "--data", "ada.npy"]
    return _told(words)


def no_data() -> Said:
    with listening() as address:
        pass
    return _told(["client", "--name", "ada", "--insecure", "--server", address, "--wait", "0"])


def _told(words: list[str]) -> Said:
    """What is said before the end."""
    return Said(0, CliRunner().invoke(app, words).stdout.strip())


def file(name: str = "ada.npy") -> str:
    np.save(name, draw("ada"))
    return name


def another_folder() -> Said:
    with listening() as address:
        pass
    client("--server", address, "--folder", "mine")
    return client("--server", address, "--folder", "mine", name="bob")


def federation(*configs: dict[str, object], **settings: object) -> Said:
    """A federation in this process whose clients are told things, as `perdl client` tells them."""
    values = {"n_clients": len(configs), "n_restarts": 2, "join_timeout": 0.3, "output": "run", **settings}
    grid = InProcessGrid(client_app, configs)
    return python(lambda: serve(settings_from_values(values), grid))


def other_version() -> Said:
    with mock.patch("common.protocol.PROTOCOL", 1):
        message = pack({}, run="r", settings="{}")
    grid = InProcessGrid(client_app, [{"name": "ada"}])
    sent = grid.create_message(message, INITIALISE, 1000, "")
    (answer,) = grid.send_and_receive([sent])
    return Said(1, answer.error.reason)


def certificates(*words: str, spoil: Callable[[Path], object] = lambda folder: None) -> Said:
    command("certs", "certs", "--host", "127.0.0.1", "--client", "ada")
    spoil(Path("certs/clients/ada"))
    with listening() as address:
        pass
    return client("--certs", "certs/clients/ada", "--server", address, *words, insecure=False)


MISTAKES = [
    Mistake("No server", nobody, 4, ("127.0.0.1", "perdl server"), "start `perdl server`, or correct the address"),
    Mistake("A port at which something else listens", somebody_else, 4, ("127.0.0.1", "address"), "correct the port"),
    Mistake(
        "An address without a port",
        lambda: client("--server", "localhost"),
        2,
        ("localhost", "HOST:PORT"),
        "add the port",
    ),
    Mistake(
        "A URL for an address",
        lambda: client("--server", "http://127.0.0.1:8000"),
        2,
        ("HOST:PORT",),
        "leave http:// out",
    ),
    Mistake(
        "A port that is none",
        lambda: client("--server", "127.0.0.1:99999"),
        2,
        ("the server's address is", "HOST:PORT"),
        "a port up to 65535",
    ),
    Mistake(
        "A port that is taken, as by a server started twice",
        port_taken,
        4,
        ("port", "choose another"),
        "end the other server, or take another port",
    ),
    Mistake(
        "A server for the whole network",
        lambda: server("--insecure", "--address", "0.0.0.0:8000"),
        2,
        ("0.0.0.0", "127.0.0.1", "gateway"),
        "listen on 127.0.0.1 and let clients in by a gateway",
    ),
    Mistake(
        "Neither certificates nor --insecure, server", lambda: server(), 2, ("--certs", "--insecure"), "decide for one"
    ),
    Mistake(
        "Neither certificates nor --insecure, client",
        lambda: client(insecure=False),
        2,
        ("--certs", "--insecure"),
        "decide for one",
    ),
    Mistake(
        "Both certificates and --insecure",
        lambda: client("--certs", "x"),
        2,
        ("--certs", "--insecure"),
        "decide for one",
    ),
    Mistake(
        "Plain text to another machine",
        lambda: client("--server", "192.0.2.1:8000"),
        2,
        ("192.0.2.1", "--certs"),
        "--certs, see the page on security",
    ),
    Mistake(
        "A server's folder of certificates that is empty",
        lambda: server("--certs", "certs"),
        2,
        ("certs",),
        "make the certificates: perdl certs",
    ),
    Mistake(
        "A client's folder without ca.crt",
        lambda: certificates(spoil=lambda f: (f / "ca.crt").unlink()),
        2,
        ("ca.crt",),
        "copy ca.crt there",
    ),
    Mistake(
        "A certificate that is none",
        lambda: certificates(spoil=lambda f: (f / "ca.crt").write_text("x")),
        2,
        ("ca.crt", "PEM"),
        "copy it again",
    ),
    Mistake(
        "A key that is none",
        lambda: certificates(spoil=lambda f: (f / "key").write_text("x")),
        2,
        ("key", "ssh-keygen"),
        "make the key again",
    ),
    Mistake("A client without a name", lambda: command("client", "--insecure"), 2, ("--name",), "--name"),
    Mistake(
        "A client's name with a slash",
        lambda: client(name="../ada"),
        2,
        ("../ada", "without /"),
        "a name has no / and no \\",
    ),
    Mistake(
        "A file that is not there",
        lambda: client("--data", "ada.csv"),
        3,
        ("ada.csv", "correct the path"),
        "correct the path",
    ),
    Mistake(
        "A file misspelt",
        lambda: (file(), client("--data", "adda.npy"))[1],
        3,
        ("adda.npy", "'ada.npy'"),
        "correct the path",
    ),
    Mistake(
        "Several files for one client, as of a glob that the shell expands",
        lambda: client("--data", file("1.npy"), file("2.npy")),
        2,
        ("1.npy, 2.npy are data", "client takes one file (--data FILE)"),
        "one file, or a folder of files that are joined",
    ),
    Mistake(
        "Data for a server",
        lambda: command("server", file(), "--insecure"),
        2,
        ("ada.npy is data", "perdl server files ...", "perdl client --data ada.npy ..."),
        "start the server with the preset files, and each client with its --data",
    ),
    Mistake(
        "Several clients' data for a server",
        lambda: command("server", "--insecure", file("1.npy"), file("2.npy")),
        2,
        ("1.npy, 2.npy are data", "perdl server files ...", "perdl client --data FILE ..."),
        "start the server with the preset files, and each client with its --data",
    ),
    Mistake(
        "Orientation misspelt",
        lambda: client("--data", file(), "--samples-in", "cols"),
        2,
        ("cols", "rows or columns"),
        "rows or columns",
    ),
    Mistake(
        "A setting of the run given to a client",
        lambda: client("-c", "n_global=2"),
        2,
        ("n_global", "whole run"),
        "set it at the server",
    ),
    Mistake(
        "The folder of another client",
        another_folder,
        2,
        ("mine", "ada", "bob", "--folder"),
        "a --folder for each client",
    ),
    Mistake(
        "A folder that cannot be written",
        lambda: client("--folder", "/proc/nowhere"),
        1,
        ("/proc/nowhere", "--folder"),
        "another --folder",
    ),
    Mistake(
        "A folder without a run to resume",
        lambda: command("server", "--insecure", "--resume", "nowhere"),
        2,
        ("nowhere", "begin the run anew"),
        "begin the run anew",
    ),
    Mistake(
        "Two clients of one name",
        lambda: federation({"name": "ada"}, {"name": "ada", "folder": "other"}),
        4,
        ("ada",),
        "another --name",
    ),
    Mistake(
        "Clients with data, a server of made-up data",
        lambda: federation({"name": "ada", "data": file()}),
        4,
        ("ada", "data.source=files"),
        "start the server with the preset files",
    ),
    Mistake(
        "Clients without data, a server of files",
        lambda: federation({"name": "ada"}, data={"source": "files"}),
        4,
        ("ada", "--data"),
        "start the client with --data",
    ),
    Mistake(
        "A client without data",
        no_data,
        0,
        ("no data given", "--data FILE"),
        "--data, unless the server's samples are made up",
    ),
    Mistake(
        "One client with other features",
        lambda: federation(
            {"name": "ada", "data": file()}, {"name": "bob", "data": turned()}, data={"source": "files"}, n_global=2
        ),
        4,
        ("bob", "--samples-in columns"),
        "--samples-in columns, or give the same features",
    ),
    Mistake(
        "A client whose samples have row numbers",
        numbered_samples,
        0,
        ("feature 1 of ada", "row numbers", "take it out"),
        "take the column out",
    ),
    Mistake(
        "Orientation set at the server",
        orientation_at_the_server,
        0,
        ("data.samples_in", "--samples-in columns"),
        "say it to each client",
    ),
    Mistake(
        "A server of another version", other_version, 1, ("protocol 1", "same perdl"), "install the same perdl on both"
    ),
    Mistake(
        "Fewer clients than the quorum",
        lambda: federation({"name": "ada"}, n_clients=2),
        4,
        ("1 of 2", "quorum"),
        "start the others, or lower n_clients or quorum",
    ),
    Mistake(
        "A search of settings without held-out samples",
        lambda: server("--insecure", "--tune"),
        2,
        ("evaluation.held_out = 0", "0.2"),
        "hold samples out: `-c evaluation.held_out=0.2`",
    ),
    Mistake(
        "A search of settings where some share an atom",
        lambda: server(
            *("--insecure", "--tune", "-c", "sharing=some", "-c", "n_global=auto", "-c", "evaluation.held_out=0.2")
        ),
        2,
        ("sharing", "n_global"),
        "leave `sharing` out",
    ),
    Mistake(
        "A search of settings and a run at once",
        lambda: server("--insecure", "--tune", "--resume", "runs/former"),
        2,
        ("--resume", "--tune"),
        "leave one of them out",
    ),
    Mistake(
        "perdl health of a folder in which nobody works",
        lambda: command("health", "nowhere"),
        1,
        ("nowhere",),
        "start one there, or correct the path",
    ),
]


def turned() -> str:
    np.save("bob.npy", draw("bob", 7).T)
    return "bob.npy"
