"""The SuperLink's requests pass by parts of it that do nothing for them, and by no others."""

import asyncio
from types import SimpleNamespace

import pytest
from flwr.superlink import main as superlink
from starlette.middleware.base import BaseHTTPMiddleware

from perdl.engines.superlink_process import WANTED, _where

PATHS = ["/v1/fleet/pull-messages", "/v1/runtime/push-messages", "/v1/control/start-run", "/health", "/v1/fleetx", "/"]


def scope(path, plugin=None):
    app = SimpleNamespace(state=SimpleNamespace(fleet_event_log_plugin=plugin, event_log_plugin=None))
    return {"type": "http", "method": "POST", "path": path, "app": app, "headers": [], "query_string": b"", "state": {}}


def test_flower_still_has_what_requests_pass_by():
    layers = [layer.cls.__name__ for layer in superlink._get_middleware()]
    assert WANTED.keys() <= set(layers)
    # What does something for every request stays: errors in Flower's form, and its binary messages.
    assert sorted(set(layers) - WANTED.keys()) == ["BaseHTTPMiddleware", "ProtobufTranslationMiddleware"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", WANTED)
def test_a_part_that_is_passed_by_would_have_done_nothing(name, path):
    """Its own code, given a request that it is not asked for, hands on what it got and returns what it gets."""
    one = scope(path)
    if WANTED[name](one):
        return
    kind = getattr(superlink, name)
    layer = object.__new__(kind)
    layer._license_plugin = SimpleNamespace(check_license=lambda: pytest.fail("it was asked for its licence"))

    class Answer:
        """An answer that no one may change."""

        @property
        def headers(self):
            pytest.fail("its answer was changed")

    answer, given = Answer(), []

    async def next_one(request):
        given.append(request)
        return answer

    from starlette.requests import Request

    request = Request({**one, "scheme": "http", "server": ("127.0.0.1", 1)})
    request.state.protobuf_request = None
    assert asyncio.run(layer.dispatch(request, next_one)) is answer
    assert given == [request]


def test_requests_of_others_pass_and_its_own_do_not():
    seen = []

    async def app(scope, receive, send):
        seen.append("app")

    async def original(self, scope, receive, send):
        seen.append("layer")

    call = _where(WANTED["NodeAuthMiddleware"], original)
    layer = BaseHTTPMiddleware(app, lambda request, next_one: None)
    for one in (scope("/v1/fleet/pull-object"), scope("/v1/runtime/pull-object"), {"type": "lifespan"}):
        asyncio.run(call(layer, one, None, None))
    assert seen == ["layer", "app", "layer"]


def test_events_are_written_where_a_plugin_is_there():
    wanted = WANTED["FleetEventLogMiddleware"]
    assert wanted(scope("/v1/fleet/pull-object", plugin=object()))
    assert not wanted(scope("/v1/fleet/pull-object"))
