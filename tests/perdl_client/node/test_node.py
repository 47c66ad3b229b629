"""Our node runner against a real SuperLink, and the internals of Flower on which it stands."""

import contextlib
import datetime
import http.server
import importlib
import inspect
import ipaddress
import json
import os
import socket
import ssl
import sys
import textwrap
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import ConfigRecord, Message, RecordDict

from common.errors import DataError, FederationError, SettingsError
from perdl.engines.superlink import run_status, submit, superlink, write_bundle
from perdl_client.node.loop import run_node
from perdl_client.node.supernode import stock_command, toml_value

SERVER_APP = """
import json, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

def exchange(grid, nodes, **content):
    content = RecordDict({"in": ConfigRecord({**content, "big": bytes(6_000_000)})})
    waiting = set(grid.push_messages([Message(content, node, "train") for node in nodes]))
    replies, until = [], time.monotonic() + 30
    while waiting and time.monotonic() < until:
        replies += (new := list(grid.pull_messages(waiting)))
        waiting -= {reply.metadata.reply_to_message_id for reply in new}
        time.sleep(0.02)
    return [r.error.reason if r.has_error() else dict(r.content["out"]) for r in replies]

@app.main()
def main(grid, context):
    until = time.monotonic() + 30
    while len(nodes := list(grid.get_node_ids())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    rounds = [exchange(grid, nodes, do=do) for do in ("count", "leak", "explain", "nothing", "count", "last")]
    with open(context.run_config["out"], "w") as out:
        json.dump(rounds, out)
"""

HOSTILE_CLIENT_APP = """
import os
with open({marker!r}, "a") as marker:
    marker.write(f"{{os.getpid()}}\\n")
from flwr.clientapp import ClientApp
app = ClientApp()
"""


def client_app(message: Message, context) -> Message:
    do = message.content["in"]["do"]
    seen = int(context.state["seen"]["n"]) if "seen" in context.state else 0
    context.state["seen"] = ConfigRecord({"n": seen + 1})
    if do == "leak":
        raise ValueError("patient 4711 has 3.14")
    if do == "explain":
        raise DataError("data.csv has no rows; give it some")
    if do == "nothing":
        return None
    name = str(context.node_config["name"])
    return Message(RecordDict({"out": ConfigRecord({"name": name, "seen": seen + 1})}), reply_to=message)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)


class NodeThread(threading.Thread):
    """A node in a thread that remembers how it ended and what it told."""

    def __init__(self, address, **kwargs):
        super().__init__(daemon=True)
        self.stop, self.error, self.events = threading.Event(), None, []
        self.arguments = (address, kwargs.pop("app", client_app), kwargs.pop("node_config", {"name": "x"}))
        self.kwargs = {"stop": self.stop, "on_event": self.events.append, **kwargs}
        self.start()

    def run(self):
        try:
            run_node(*self.arguments, **self.kwargs)
        except Exception as error:
            self.error = error

    def told(self, word):
        return sum(word in event for event in self.events)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """One run of the probe with two nodes, which were started before their server."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "modules").mkdir()
    (folder / "modules" / "perdl_probe_server.py").write_text(SERVER_APP)
    bundle = write_bundle(
        folder / "bundle",
        {"out": str(folder / "out.json"), "with.dots-and-hyphens": 'a "quoted" \\ text', "rate": 1e-5},
        serverapp="perdl_probe_server:app",
        clientapp="perdl_hostile_client:app",
    )
    hostile = HOSTILE_CLIENT_APP.format(marker=str(folder / "marker"))
    (bundle / "perdl_hostile_client.py").write_text(hostile)
    address = free_address()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "modules"))
        nodes = [
            NodeThread(
                address,
                node_config={"name": name},
                is_last=lambda message: message.content["in"]["do"] == "last",
                max_wait=30,
            )
            for name in ("a", "b")
        ]
        wait_for(lambda: all(node.told("waiting") for node in nodes))
        with superlink(address, folder / "home", log=folder / "log"):
            run_id = submit(bundle, address)
            wait_for(lambda: run_status(run_id, address)[0].startswith("finished"))
            status = run_status(run_id, address)
            for node in nodes:
                node.join(5)
    return {"folder": folder, "nodes": nodes, "status": status, "log": (folder / "log").read_text()}


def rounds_of(finished_run):
    assert finished_run["status"] == ("finished:completed", ""), finished_run["log"][-3000:]
    return json.loads((finished_run["folder"] / "out.json").read_text())


def test_state_is_kept_from_message_to_message_and_past_failures(finished_run):
    rounds = rounds_of(finished_run)
    for number, seen in ((0, 1), (4, 5), (5, 6)):
        found = sorted((reply["name"], reply["seen"]) for reply in rounds[number])
        assert found == [("a", seen), ("b", seen)]


def test_an_exception_reaches_the_server_without_its_text(finished_run):
    rounds = rounds_of(finished_run)
    assert rounds[1] == ["ValueError"] * 2
    assert rounds[3] == ["TypeError"] * 2
    assert "4711" not in json.dumps(rounds)


def test_a_message_for_people_reaches_the_server(finished_run):
    assert rounds_of(finished_run)[2] == ["DataError: data.csv has no rows; give it some"] * 2


def test_the_last_message_ends_a_node(finished_run):
    for node in finished_run["nodes"]:
        assert not node.is_alive()
        assert node.error is None
        assert node.told("waiting") == 1, "before the server was there, not after it had ended"
    assert finished_run["log"].count("/v1/fleet/deactivate-node") == 2


def test_the_servers_code_is_neither_fetched_nor_run(finished_run):
    marker = finished_run["folder"] / "marker"  # `flwr run` may import what it sends, in its own process
    assert not marker.exists() or str(os.getpid()) not in marker.read_text().split()
    assert "perdl_hostile_client" not in sys.modules
    assert list((finished_run["folder"] / "home").rglob("perdl_hostile_client.py")), "the server had it to send"
    assert "Fleet.PushMessages" in finished_run["log"]
    assert "GetFab" not in finished_run["log"]
    assert "get-fab" not in finished_run["log"]


def test_no_server_is_an_error_in_bounded_time():
    address, began = free_address(), time.monotonic()
    with pytest.raises(FederationError, match=rf"no server at {address} for 0.5 s .* start this client again"):
        run_node(address, client_app, {}, max_wait=0.5)
    assert time.monotonic() - began < 3


def test_stop_ends_the_wait_for_a_server():
    node = NodeThread(free_address(), max_wait=None)
    wait_for(lambda: node.told("waiting"))
    node.stop.set()
    node.join(1)
    assert not node.is_alive()
    assert node.error is None


@pytest.mark.parametrize("address", ["localhost", "http://localhost:80", "127.0.0.1:port"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(SettingsError, match="HOST:PORT"):
        run_node(address, client_app, {})


@contextlib.contextmanager
def stranger(tls: ssl.SSLContext | None = None, page: bytes | None = None):
    """A server that is not Flower's: it answers 404 to everything, or a page."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            if page is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def certificate(folder, name) -> bytes:
    """Write a self-signed certificate and its key to ``folder / name``; return the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    pem = builder.add_extension(names, critical=False).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (folder / name).write_bytes(pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return pem


def test_a_stranger_on_the_port_is_an_error_at_once():
    with stranger() as address, pytest.raises(FederationError, match=r"does not admit this client .*404"):
        run_node(address, client_app, {}, max_wait=5)


def test_a_page_instead_of_flowers_answers_is_an_error_at_once():
    with stranger(page=b"<html>") as address, pytest.raises(FederationError, match="check the address"):
        run_node(address, client_app, {}, max_wait=5)


def test_a_message_that_is_none_is_an_error_at_once():
    from flwr.proto.fleet_pb2 import PullMessagesResponse
    from flwr.proto.message_pb2 import Message as Sent

    page = PullMessagesResponse(messages_list=[Sent()]).SerializeToString()
    with stranger(page=page) as address, pytest.raises(FederationError, match=r"not a message \(\w+\)"):
        run_node(address, client_app, {}, max_wait=5)


def test_tls_trusts_the_given_authority_and_no_other(tmp_path):
    right, wrong = certificate(tmp_path, "right"), certificate(tmp_path, "wrong")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "right")
    with stranger(tls) as address:
        with pytest.raises(FederationError, match=r"does not admit this client .*404"):
            run_node(address, client_app, {}, max_wait=5, root_certificates=right)
        with pytest.raises(FederationError, match=r"no trusted connection .*not signed by the authority in ca\.crt"):
            run_node(address, client_app, {}, max_wait=5, root_certificates=wrong)
    with pytest.raises(FederationError, match="cannot be read as PEM"):
        run_node(address, client_app, {}, root_certificates=b"not a certificate")


TEXTS = ["", "plain", 'O\'Brien "Bob"', "C:\\data\\new", "a=b c=d.toml", "tab\tline\nbell\x07del\x7f", "größe 🎻"]
TEXTS += ['\\"', "\\"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_flowers_parsers(text):
    import tomllib

    from flwr.common.config import parse_config_args

    assert tomllib.loads(f"key = {toml_value(text)}") == {"key": text}
    config = {"path": text, "n": 3, "rate": 1e-7, "on": True, "nested.key": text}
    argv, environment = stock_command("127.0.0.1:8000", config)
    assert parse_config_args([argv[argv.index("--node-config") + 1]]) == config
    assert os.access(argv[0], os.X_OK)
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"


CONTRACT = textwrap.dedent("""
    flwr.app Context(self, run_id, node_id, node_config, state, run_config, series_id)
    flwr.app Error(self, code, reason)
    flwr.app.message remove_content_from_message(message)
    flwr.common.serde message_from_proto(message_proto)
    flwr.common.serde message_to_proto(message)
    flwr.supercore.error FlowerError.from_json(value)
    flwr.supercore.inflatable.inflatable_object get_all_nested_objects(obj)
    flwr.supercore.inflatable.inflatable_object get_object_tree(obj)
    flwr.supercore.inflatable.inflatable_object iterate_object_tree(tree)
    flwr.supercore.inflatable.inflatable_object no_object_id_recompute()
    flwr.supercore.inflatable.inflatable_utils inflate_object_from_contents(object_id, object_contents, **)
    flwr.supercore.primitives.asymmetric generate_key_pairs()
    flwr.supercore.primitives.asymmetric public_key_to_bytes(public_key)
    flwr.supernode.node_auth_http_interceptor NodeAuthHttpInterceptor(self, private_key, public_key)
    flwr.supernode.fleet_http_client FleetHttpClient(self, base_url, interceptors, verify, timeout, retry_invoker)
    flwr.supernode.fleet_http_client FleetHttpClient.RegisterNode(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.ActivateNode(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.DeactivateNode(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.UnregisterNode(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.SendNodeHeartbeat(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.PullMessages(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.PushMessages(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.PullObject(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.PushObject(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.ConfirmMessageReceived(self, request)
    flwr.supernode.fleet_http_client FleetHttpClient.GetRun(self, request)
""").split("\n")[1:-1]

FIELDS = textwrap.dedent("""
    flwr.proto.fleet_pb2 RegisterNodeFleetRequest public_key
    flwr.proto.fleet_pb2 ActivateNodeRequest public_key heartbeat_interval
    flwr.proto.fleet_pb2 ActivateNodeResponse node_id
    flwr.proto.fleet_pb2 DeactivateNodeRequest node_id
    flwr.proto.fleet_pb2 UnregisterNodeFleetRequest node_id
    flwr.proto.fleet_pb2 PullMessagesRequest node
    flwr.proto.fleet_pb2 PullMessagesResponse messages_list message_object_trees
    flwr.proto.fleet_pb2 PushMessagesRequest node messages_list message_object_trees clientapp_runtime_list
    flwr.proto.fleet_pb2 PushMessagesResponse objects_to_push session_id
    flwr.proto.heartbeat_pb2 SendNodeHeartbeatRequest node heartbeat_interval
    flwr.proto.message_pb2 ObjectTree object_id children
    flwr.proto.message_pb2 PullObjectRequest node run_id object_id
    flwr.proto.message_pb2 PullObjectResponse object_found object_available object_content
    flwr.proto.message_pb2 PushObjectRequest node run_id object_id object_content session_id
    flwr.proto.message_pb2 ConfirmMessageReceivedRequest node run_id message_object_id
    flwr.proto.run_pb2 GetRunRequest node run_id
    flwr.proto.control_pb2 ListRunsRequest run_id
    flwr.proto.control_pb2 ListRunsResponse run_dict
    flwr.proto.control_pb2 StopRunRequest run_id
""").split("\n")[1:-1]

UPGRADE = "Flower has changed under perdl_client/node/connection.py; compare its fleet_http_connection.py"


@pytest.mark.parametrize("line", CONTRACT)
def test_flower_offers_the_calls_that_the_node_makes(line):
    module, _, call = line.partition(" ")
    thing = importlib.import_module(module)
    for part in call.partition("(")[0].split("."):
        assert hasattr(thing, part), f"{UPGRADE}: {line}"
        thing = getattr(thing, part)
    function = thing.__init__ if inspect.isclass(thing) else thing
    found, wanted = ", ".join(inspect.signature(function).parameters), call.partition("(")[2][:-1]
    assert found.startswith(wanted.removesuffix("**")), f"{UPGRADE}: {line}"
    assert found == wanted or wanted.endswith("**"), f"{UPGRADE}: {line}"


@pytest.mark.parametrize("line", FIELDS)
def test_flowers_messages_have_the_fields_that_the_node_uses(line):
    module, kind, *fields = line.split()
    found = getattr(importlib.import_module(module), kind).DESCRIPTOR.fields_by_name
    assert set(fields) <= set(found), f"{UPGRADE}: {line}"


def test_flowers_constants_mean_what_the_node_takes_them_for():
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_MIN_INTERVAL, ErrorCode

    assert HEARTBEAT_DEFAULT_INTERVAL >= HEARTBEAT_MIN_INTERVAL, UPGRADE
    assert ErrorCode.CLIENT_APP_RAISED_EXCEPTION == 2, UPGRADE
