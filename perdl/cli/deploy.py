"""The commands around a deployment: ``perdl certs``, ``gateway``, ``health``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdl.cli.command import command, err, out
from perdl.cli.console import print_line


@command
def certs(
    folder: Annotated[Path, typer.Argument(help="the server's folder of certificates and keys")],
    host: Annotated[list[str], typer.Option(help="name or IP address under which clients reach the server")] = [],  # noqa: B006
    client: Annotated[list[str], typer.Option(help="name of a client that gets a key and may join")] = [],  # noqa: B006
    days: Annotated[int, typer.Option(min=1, max=3650, help="how long the server's certificate is valid")] = 365,
    secret: Annotated[
        Path | None, typer.Option(help="file to make for clients of masked runs; the server must not have it")
    ] = None,
) -> None:
    """Make what is not there yet of a deployment's certificates and keys."""
    from perdl.deploy.certs import make_certs, make_secret

    if secret is not None:
        make_secret(secret, folder)
        print_line(out, f"made {secret}: give it to every client, and not to the server")

    made = make_certs(folder, host, client, days)
    for path in made:
        print_line(out, f"made {path}")
    if not made and secret is None:
        print_line(out, f"{folder} has all of that already")


@command
def gateway(
    certs: Annotated[Path, typer.Option(help="the server's folder, made by perdl certs")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients on other hosts, as 0.0.0.0:8443")],
    to: Annotated[str, typer.Option(help="HOST:PORT of perdl server")] = "127.0.0.1:8000",
    run: Annotated[Path, typer.Option(help="folder for nginx's own files")] = Path("gateway-run"),
) -> None:
    """Print an nginx configuration that lets clients in from other hosts, and nothing but clients."""
    from perdl.deploy.gateway import gateway_config

    config = gateway_config(certs, listen, to, run)
    run.mkdir(parents=True, exist_ok=True)
    typer.echo(config, nl=False)
    err.print(f'run it as `nginx -e stderr -p {run} -c "$PWD/FILE"`', markup=False, highlight=False, soft_wrap=True)


@command
def health(folder: Annotated[Path, typer.Argument(help="a client's --folder, or a server's --output")]) -> None:
    """Exit with 0 if a server or client at work in this folder gave a sign of life within the last minute."""
    from common.heartbeat import check_sign

    check_sign(folder)
