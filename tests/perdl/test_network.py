"""Two hosts (network namespaces) and a real network between them: what travels, what is reached, what if it breaks.

Needs root, ``ip`` of iproute2, nginx and tcpdump. A capture is taken apart here, to the bytes of each TCP stream, and
searched for every single number of the clients' samples, codes and local atoms.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from common.protocol import unpack
from common.settings import settings_from_values
from common.statistics import rms
from common.synthetic import generate
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_client.learning import client as client_round
from perdl_server.app import app as server_app

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
MISSING = [tool for tool in ("ip", "nginx", "tcpdump") if shutil.which(tool, path=PATH) is None]
hosts_needed = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]
PERDL = [sys.executable, "-m", "perdl"]
NAMES = ("client-1", "client-2")
ROUNDS = 20
VALUES = {
    "n_clients": 2,
    "rounds": ROUNDS,
    "tolerance": 0.0,
    "synthetic": {"noise": 0.1},
}  # noise: no value comes twice
WORDS = (b"perdl", b"fleet", b"client-1", b"\x93NUMPY")


class Hosts:
    """A server's host and a clients' host, and one cable for each of ``n_links`` (10.77.k.1 - 10.77.k.2)."""

    def __init__(self, processes) -> None:
        self.processes, tag = processes, uuid4().hex[:8]
        self.server, self.clients = f"perdl-{tag}-s", f"perdl-{tag}-c"

    def build(self, n_links: int) -> None:
        for host in (self.server, self.clients):
            if (done := ip("netns", "add", host, check=False)).returncode:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
            ip("-n", host, "link", "set", "lo", "up")
        for k in range(n_links):
            ip("-n", self.server, "link", "add", f"net{k}", "type", "veth", "peer", f"net{k}", "netns", self.clients)
            for host, end in ((self.server, 1), (self.clients, 2)):
                ip("-n", host, "address", "add", f"10.77.{k}.{end}/24", "dev", f"net{k}")
                ip("-n", host, "link", "set", f"net{k}", "up")

    def cable(self, k: int, state: str) -> None:
        ip("-n", self.server, "link", "set", f"net{k}", state)

    def start(self, host: str, label: str, *command) -> subprocess.Popen:
        return self.processes.command(label, "ip", "netns", "exec", host, *command, env={"PATH": PATH})

    def serve(self, *trust, rounds: int = ROUNDS, options=()) -> None:
        run = ["-c", "n_clients=2", "-c", f"rounds={rounds}", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]
        arguments = ["server", "synthetic", *run, *options, *trust, "--address", "127.0.0.1:8000", "--output", "served"]
        self.start(self.server, "server", *PERDL, *arguments)

    def serve_with_tls(self, listen: str = "10.77.0.1:8443", **keywords) -> None:
        """Certificates, server and gateway, as docs/reliability.md has them."""
        names = [word for k in range(2) for word in ("--host", f"10.77.{k}.1", "--client", NAMES[k])]
        self.processes.run("certs", "certs", *names)
        gateway = f"{sys.executable} -m perdl gateway --certs certs --listen {listen} --to 127.0.0.1:8000"
        nginx = 'exec nginx -e stderr -p gateway-run -c "$PWD/gateway.conf"'
        self.start(self.server, "gateway", "sh", "-c", f"{gateway} > gateway.conf && {nginx}")
        self.serve("--certs", "certs", **keywords)

    def join_with_tls(self, name: str, address: str = "10.77.0.1:8443", *more) -> None:
        arguments = ["--certs", f"certs/clients/{name}", "--server", address, "--name", name, *more]
        self.start(self.clients, name, *PERDL, "client", *arguments)

    def all_end_well(self) -> None:
        for label in ("server", *NAMES):
            assert self.processes.wait(label, 120) == 0, self.processes.log(label)

    def end(self) -> None:
        self.processes.end()
        for host in (self.server, self.clients):
            ip("netns", "delete", host, check=False)


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run([shutil.which("ip", path=PATH), *words], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done


@pytest.fixture
def hosts(processes, request):
    made = Hosts(processes)
    try:
        made.build(getattr(request, "param", 1))
        yield made
    finally:
        made.end()


def simulated(folder: Path, rounds: int = ROUNDS):
    """The same run in this process: D^g, all arrays that travel, and each client's secrets by name."""
    settings, arrays, blocks = settings_from_values(VALUES | {"rounds": rounds, "output": str(folder)}), [], []
    update = client_round.local_update

    def watched(Y, D_g, D_l, *rest):
        new = update(Y, D_g, D_l, *rest)
        blocks.extend([D_l, new.local_dictionary])
        return new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_round, "local_update", watched)
        run_in_process(
            server_app, client_app, settings, record=lambda m: arrays.extend(unpack(m.content).arrays.values())
        )
    secrets = {"local atoms on the way": np.hstack(blocks)}
    for name in NAMES:
        Y = generate(0, name, n_features=6, n_global=3, n_local=3, n_samples=200, noise=0.1).data
        with np.load(folder / "clients" / name / "dictionary.npz") as own:
            D = np.hstack([own["global"], own["local"]])
        secrets[f"samples of {name}"] = Y
        secrets[f"local atoms of {name}"] = D[:, 3:]
        secrets[f"codes of {name}"] = settings.make_coder(rms(Y))(Y, D)
    with np.load(folder / "global_dictionary.npz") as file:
        return file["dictionary"], arrays, secrets


def tcp_streams(capture: bytes) -> dict[bytes, bytes]:
    """The bytes of each direction of each TCP connection in a pcap file of Ethernet frames; none may be missing."""
    magic, _, _, _, _, _, link = struct.unpack_from("<IHHiIII", capture)
    assert (magic, link) == (0xA1B2C3D4, 1)
    at, first, parts = 24, {}, defaultdict(dict)
    while at < len(capture):
        kept, length = struct.unpack_from("<II", capture, at + 8)
        assert kept == length, "a packet was cut short"
        frame, at = capture[at + 16 : at + 16 + kept], at + 16 + kept
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        (size,) = struct.unpack_from(">H", frame, 16)
        segment = frame[14 + 4 * (frame[14] & 15) : 14 + size]
        stream, (number,) = frame[26:34] + segment[:4], struct.unpack_from(">I", segment, 4)
        if segment[13] & 2:  # SYN: the stream begins after it
            first[stream] = number + 1
        payload = segment[4 * (segment[12] >> 4) :]
        if payload:
            place = (number - first[stream]) % 2**32
            parts[stream][place] = max(payload, parts[stream].get(place, b""), key=len)
    return {stream: _joined(pieces) for stream, pieces in parts.items()}


def _joined(pieces: dict[int, bytes]) -> bytes:
    joined = bytearray()
    for place in sorted(pieces):
        assert place <= len(joined), "the capture lacks a packet"
        joined += pieces[place][len(joined) - place :]
    return bytes(joined)


def words_in(streams: list[bytes]) -> np.ndarray:
    """All that eight bytes in a row say, beginning at any place, sorted.

    Times of day are blotted out: the 50.168829 seconds of a request's timestamp are not a sample of 0.168829.
    """
    streams = [re.sub(rb"\d\d:\d\d:\d\d\.\d{6}", b"#" * 15, s) for s in streams]
    words = [np.frombuffer(s[o : o + (len(s) - o) // 8 * 8], "<u8") for s in streams for o in range(min(8, len(s)))]
    return np.unique(np.concatenate(words))


def found(array: np.ndarray, words: np.ndarray) -> int:
    """How many of the array's values are among the words.

    Looked for in eight bytes each: the value as float64, and it with its neighbour in row or column as float32, each in
    both byte orders; and the first eight characters of its decimal text. Zeros are not looked for.
    """

    def seen(values):
        values = np.ascontiguousarray(values).view("<u8").reshape(values.shape[:2])
        return words[np.searchsorted(words, values).clip(max=len(words) - 1)] == values

    texts = np.array([[f"{abs(value):.12f}"[:8].encode() for value in row] for row in array], "S8")
    there = seen(texts)
    for end in "<>":
        there |= seen(array.astype(f"{end}f8"))
        for i, j in ((1, 0), (0, 1)):
            this, following = array[: len(array) - i, : array.shape[1] - j], array[i:, j:]
            pairs = np.stack([this, following], axis=-1).astype(f"{end}f4")
            there[: len(array) - i, : array.shape[1] - j] |= seen(pairs) & (following != 0)
    return np.unique(array[there & (array != 0)]).size


def arrays_in(streams: list[bytes]) -> list[np.ndarray]:
    """All arrays in NumPy's format."""
    starts = [(s, match.start()) for s in streams for match in re.finditer(rb"\x93NUMPY", s)]
    return [np.lib.format.read_array(io.BytesIO(s[i : i + 4096])) for s, i in starts]


def captured(hosts: Hosts) -> list[bytes]:
    """End the capture and return all streams in it."""
    log, path = hosts.processes.folder / "tcpdump.log", hosts.processes.folder / "wire.pcap"
    time.sleep(0.5)
    hosts.processes.started["tcpdump"].send_signal(signal.SIGINT)
    assert hosts.processes.wait("tcpdump", 10) == 0, log.read_text()
    assert "\n0 packets dropped by kernel" in log.read_text()
    return list(tcp_streams(path.read_bytes()).values())


def capture(hosts: Hosts) -> None:
    # At the clients' side: tcpdump would end if its own end of the cable were taken down.
    command = ["tcpdump", "--immediate-mode", "-B", "65536", "-U", "-Z", "root", "-i", "net0", "-w", "wire.pcap", "tcp"]
    hosts.start(hosts.clients, "tcpdump", *command)
    hosts.processes.wait_for(lambda: "listening on net0" in hosts.processes.log("tcpdump"), 20)


def report(streams: list[bytes], D_g, arrays, secrets) -> dict[str, int]:
    sent = {f"sent arrays of shape {shape}": [a for a in arrays if a.shape == shape] for shape in ((6, 6), (6, 3))}
    rows = {"D^g": D_g, **{key: np.hstack(values) for key, values in sent.items()}, **secrets}
    words = words_in(streams)
    counts = {name: found(array, words) for name, array in rows.items()}
    print(f"{len(streams)} streams, {sum(map(len, streams))} bytes")
    for name, array in rows.items():
        print(f"{name}: {counts[name]} of {np.unique(array[array != 0]).size}")
    return counts


def reached(hosts: Hosts, address: str, port: int) -> bool:
    """Whether something listens there, as seen from the clients' host."""
    connect = "import socket, sys; sys.exit(socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))))"
    label = f"reach {address} {port}"
    hosts.start(hosts.clients, label, sys.executable, "-c", connect, address, port)
    code = hosts.processes.wait(label, 10)
    assert code in (0, errno.ECONNREFUSED)
    return code == 0


class TestTwoHosts:
    pytestmark = hosts_needed

    def test_with_tls_over_a_network_that_breaks_the_bits_are_the_same_and_nothing_is_found(self, hosts, tmp_path):
        capture(hosts)
        hosts.serve_with_tls()
        for name in NAMES:
            hosts.join_with_tls(name)
        hosts.processes.wait_for_round(3)
        hosts.cable(0, "down")
        time.sleep(1)  # for what was under way at the server itself
        before = len(hosts.processes.rounds())
        time.sleep(4)
        assert len(hosts.processes.rounds()) == before < ROUNDS
        hosts.cable(0, "up")
        began = time.monotonic()
        hosts.processes.wait_for_round(before + 1, seconds=30)
        print(f"a complete round {time.monotonic() - began:.1f} s after the network was back")
        assert reached(hosts, "10.77.0.1", 8443)
        assert not reached(hosts, "10.77.0.1", 8000)  # the SuperLink's own port
        assert not reached(hosts, "127.0.0.1", 8000)
        hosts.all_end_well()

        D_g, arrays, secrets = simulated(tmp_path / "simulated")
        assert [row["clients"] for row in hosts.processes.rounds()] == [2] * ROUNDS
        np.testing.assert_array_equal(hosts.processes.dictionary(), D_g)
        streams = captured(hosts)
        assert sum(map(len, streams)) > 50_000
        assert not any(report(streams, D_g, arrays, secrets).values())
        assert not arrays_in(streams)
        assert not any(word in stream for stream in streams for word in WORDS)

    def test_in_plain_text_all_that_travels_is_found_and_neither_samples_nor_codes_nor_local_atoms(
        self, hosts, tmp_path
    ):
        capture(hosts)
        hosts.start(hosts.server, "forward", sys.executable, "-c", FORWARD)
        hosts.serve("--insecure")
        for name in NAMES:
            trust = ["--insecure", "--trust-network", "--server", "10.77.0.1:8001"]
            hosts.start(hosts.clients, name, *PERDL, "client", *trust, "--name", name)
        hosts.all_end_well()

        D_g, arrays, secrets = simulated(tmp_path / "simulated")
        np.testing.assert_array_equal(hosts.processes.dictionary(), D_g)
        streams = captured(hosts)
        counts = report(streams, D_g, arrays, secrets)
        assert counts.pop("D^g") == D_g.size
        for shape in ((6, 6), (6, 3)):
            values = np.unique([array for array in arrays if array.shape == shape])
            assert counts.pop(f"sent arrays of shape {shape}") == values.size > 30
        assert set(counts) == set(secrets)
        assert not any(counts.values())
        # No array is there but those that tests/perdl/engines/test_in_process.py holds to docs/privacy.md.
        assert {array.tobytes() for array in arrays_in(streams)} == {array.tobytes() for array in arrays}
        assert all(any(word in stream for stream in streams) for word in WORDS)

    @pytest.mark.skipif(os.environ.get("PERDL_SLOW") != "1", reason="takes two minutes; needs PERDL_SLOW=1")
    @pytest.mark.parametrize("hosts", [2], indirect=True)
    @pytest.mark.parametrize("quorum", [1, 2])
    def test_a_client_cut_off_until_it_is_given_up_comes_back(self, hosts, quorum, tmp_path):
        rounds = 100_000 if quorum == 1 else 30
        hosts.serve_with_tls("0.0.0.0:8443", rounds=rounds, options=["-c", f"quorum={quorum}", "--log", "log.jsonl"])
        for k, name in enumerate(NAMES):
            hosts.join_with_tls(name, f"10.77.{k}.1:8443", "--wait", "300")
        hosts.processes.wait_for_round(3)
        hosts.cable(1, "down")
        cut = time.monotonic()
        if quorum == 1:
            hosts.processes.wait_for(lambda: hosts.processes.rounds()[-1]["clients"] == 1, 90)
            print(f"given up after {time.monotonic() - cut:.0f} s")
        time.sleep(max(0, cut + 75 - time.monotonic()))
        before = len(hosts.processes.rounds())
        hosts.cable(1, "up")
        began = time.monotonic()
        hosts.processes.wait_for(lambda: any(row["clients"] == 2 for row in hosts.processes.rounds()[before:]), 60)
        print(f"both in a round {time.monotonic() - began:.1f} s after the network was back")
        log = [json.loads(line) for line in (hosts.processes.folder / "log.jsonl").read_text().splitlines()]
        assert [line.get("client") for line in log if line["text"].endswith("is back")] == ["client-2"]
        if quorum == 2:
            hosts.all_end_well()
            np.testing.assert_array_equal(hosts.processes.dictionary(), simulated(tmp_path / "simulated", 30)[0])


FORWARD = """
import asyncio

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def joined(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", 8000)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)

async def main():
    async with await asyncio.start_server(joined, "10.77.0.1", 8001) as server:
        await server.serve_forever()

asyncio.run(main())
"""


def test_the_search_finds_what_is_planted_whatever_the_packets(tmp_path):
    rng = np.random.default_rng(0)
    secret, other = rng.standard_normal((2, 6, 9))
    text = " ".join(f"{value:.10f}" for value in secret[:, 0]).encode()
    halves = secret[:, 1].astype("f4").tobytes() + secret[2].astype(">f4").tobytes()
    stream = rng.bytes(4321) + secret[3].tobytes() + secret[4].astype(">f8").tobytes() + text + rng.bytes(1001) + halves
    capture = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
    begin = 2**32 - 700  # its numbers begin anew on the way
    places = list(range(0, len(stream), 500))
    for place in [None, *places[1::2], *places[::2], places[3]]:  # the second half comes first, one packet twice
        payload = b"" if place is None else stream[place : place + 500]
        number = begin if place is None else (begin + 1 + place) % 2**32
        segment = struct.pack(">HHIIBBHHH", 5, 6, number, 0, 5 << 4, 2 if place is None else 16, 0, 0, 0) + payload
        packet = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0, 1, 2) + segment
        frame = bytes(12) + b"\x08\x00" + packet
        capture += struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame
    (read,) = tcp_streams(capture).values()
    assert read == stream
    planted = np.zeros((6, 9), dtype=bool)
    planted[3:5] = planted[:, 0] = True
    planted[:5, 1] = planted[2, :8] = True  # a value with the next one
    assert found(secret, words_in([read])) == planted.sum()
    assert found(other, words_in([read])) == 0
