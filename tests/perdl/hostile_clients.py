"""Clients that answer what they should not, one thread each: ``hostile_clients.py HOST:PORT KIND...``."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import numpy as np
from flwr.app import Message

from common.errors import FederationError
from common.protocol import FINISH, UPDATE, pack, unpack
from perdl_client.app import app
from perdl_client.node.connection import Link
from perdl_client.node.loop import run_node

first_answers = {}


def spoiled(kind, name, arrays, scalars):
    """What such a client says instead."""
    A = arrays["contribution"]
    other = {
        "wrong-shape": A[:, :-1],
        "transposed": A.T,
        "integers": np.rint(A).astype(np.int64),
        "half-precision": A.astype(np.float16),
        "nan": np.where(np.arange(A.size).reshape(A.shape) == 3, np.nan, A),
        "infinity": np.where(np.arange(A.size).reshape(A.shape) == 3, -np.inf, A),
        "zeros": np.zeros_like(A),
        "one-zero-atom": A * (np.arange(A.shape[1]) != 1),
        "huge": 1e9 * A,
    }
    if kind == "other-name":
        scalars["client"] = "client-1"
    if kind == "replay":
        return first_answers.setdefault(name, (arrays, dict(scalars)))
    if kind == "no-array":
        return {}, scalars
    return {**arrays, "contribution": other.get(kind, A)}, scalars


def hostile(kind, name):
    def answer(message, context):
        reply = app(message, context)
        if message.metadata.message_type != UPDATE or reply.has_error():
            return reply
        payload = unpack(reply.content)
        scalars = {key: value for key, value in payload.scalars.items() if key != "protocol"}
        if kind == "wrong-version":
            reply.content["perdl"]["protocol"] = 99
            return reply
        arrays, scalars = spoiled(kind, name, dict(payload.arrays), scalars)
        return Message(pack(arrays, **scalars), reply_to=message)

    return answer


def never_deliver(link, reply, seconds):
    """Announce the answers to updates, and send none of what they consist of."""
    push = link.client.PushObject
    if reply.metadata.message_type == UPDATE:
        link.client.PushObject = lambda request: None
    send(link, reply, seconds)
    link.client.PushObject = push


send = Link.send


def take_part(server, kind, number):
    name = f"client-{number}"
    config = {"name": name, "partition-id": number - 1, "folder": f"hostile/{name}"}
    with suppress(FederationError):
        run_node(
            server, hostile(kind, name), config, is_last=lambda m: m.metadata.message_type == FINISH, max_wait=30.0
        )


if __name__ == "__main__":
    if sys.argv[2:] == ["never-delivered"]:
        Link.send = never_deliver
    threads = [
        threading.Thread(target=take_part, args=(sys.argv[1], kind, 3 + i)) for i, kind in enumerate(sys.argv[2:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
