"""An nginx configuration that lets clients on other hosts reach the server, and nothing else.

The SuperLink's Control API needs no authentication and shares its port with the clients' API. So the SuperLink stays on
loopback, and this gateway passes only ``/v1/fleet/``.
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from common.addresses import split_address
from common.errors import SettingsError
from perdl.deploy.certs import CA, CERTIFICATE, KEY, check_certs

_TEMPLATE = Template("""\
# Clients come in by TLS on $listen, and to /v1/fleet/ only: the SuperLink's other interfaces ask for no
# authentication, and whoever reaches them can run code on its machine.
daemon off;
pid "$run/nginx.pid";
error_log stderr warn;
worker_processes 1;

events {
    worker_connections 1024;
}

http {
    server_tokens off;
    # Clients ask every half second: only what was refused is worth a line.
    map $$status $$refused { ~^[23] 0; default 1; }
    access_log "$run/refused.log" combined if=$$refused;

    client_body_temp_path "$run/body";
    proxy_temp_path "$run/proxy";
    fastcgi_temp_path "$run/fastcgi";
    uwsgi_temp_path "$run/uwsgi";
    scgi_temp_path "$run/scgi";

    # Messages may be large and slow: no limit on their size, and none is kept here.
    client_max_body_size 0;
    client_body_timeout 300s;
    send_timeout 300s;
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_connect_timeout 10s;
    proxy_read_timeout 300s;
    proxy_send_timeout 300s;
    keepalive_timeout 300s;
    keepalive_requests 100000;

    # To join costs a check of a signature, and is what a stranger can ask for.
    limit_req_zone $$binary_remote_addr zone=join:1m rate=10r/s;
    limit_req_status 429;

    upstream superlink {
        server $to;
        keepalive 32;
    }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate "$certs/$ca";
    proxy_ssl_name localhost;
    proxy_ssl_protocols TLSv1.2 TLSv1.3;

    server {
        listen $listen ssl;
        ssl_certificate "$certs/$certificate";
        ssl_certificate_key "$certs/$key";
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:tls:1m;

        # Each proxy_pass names a path, so that what is passed is the path that was matched, with no ".." left in it.
        location /v1/fleet/ {
            limit_except POST { deny all; }
            proxy_pass https://superlink/v1/fleet/;
        }
        location = /v1/fleet/activate-node {
            limit_except POST { deny all; }
            limit_req zone=join burst=50 nodelay;
            proxy_pass https://superlink/v1/fleet/activate-node;
        }
        location = /health {
            proxy_pass https://superlink/health;
        }
        location / {
            return 403;
        }
    }
}
""")


def gateway_config(certs: Path, listen: str, to: str, run: Path) -> str:
    """Return a configuration for nginx 1.18 or later, run by any user.

    Parameters
    ----------
    certs : Path
        The server's folder; see :mod:`perdl.deploy.certs`.
    listen : str
        ``HOST:PORT`` for the clients.
    to : str
        ``HOST:PORT`` of the SuperLink.
    run : Path
        Folder for nginx's own files.

    Raises
    ------
    SettingsError
        If an address is not valid, nginx cannot use a path, or a certificate is not valid.
    """
    check_certs(certs, keys=False)
    places = {"certs": str(certs.resolve()), "run": str(run.resolve())}
    for place in places.values():
        if set(place) & set('"\\$') or not place.isprintable():
            raise SettingsError(f'{place}: nginx cannot be told of a path with ", \\ or $; choose another folder')
    for option, address in (("--listen", listen), ("--to", to)):
        split_address(address, option)
    return _TEMPLATE.substitute(places, listen=listen, to=to, ca=CA, certificate=CERTIFICATE, key=KEY)
