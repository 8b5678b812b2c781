"""Routers are found by their EndpointSlices and read over HTTP with every failure named."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from cascade_driftwatch import routers
from cascade_driftwatch.routers import Address
from tests.driftwatch import stand_ins, traffic
from tests.driftwatch.traffic import STATIONARY


def found(*slices: dict[str, Any]) -> list[tuple[str, str, int]]:
    addresses = routers.addresses(slices, "team-a", "chat")
    return [(a.pod, a.host, a.port) for a in addresses]


def test_pods_come_from_all_slices_of_the_cascade_each_once() -> None:
    one = stand_ins.endpoint_slice({"b": "10.0.0.2", "a": "10.0.0.1"})
    two = stand_ins.endpoint_slice({"c": "10.0.0.3", "a": "10.0.0.1"})
    assert found(one, two) == [
        ("a", "10.0.0.1", 9090),
        ("b", "10.0.0.2", 9090),
        ("c", "10.0.0.3", 9090),
    ]


def test_slices_of_other_cascades_and_namespaces_are_passed_over() -> None:
    other = stand_ins.endpoint_slice({"x": "10.0.0.9"}, cascade="other")
    elsewhere = stand_ins.endpoint_slice({"y": "10.0.0.8"}, namespace="team-b")
    assert found(other, elsewhere) == []


def test_pods_that_are_not_ready_are_passed_over_and_unset_means_ready() -> None:
    one = stand_ins.endpoint_slice({"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"})
    one["endpoints"][0]["conditions"] = {"ready": False}
    one["endpoints"][1]["conditions"] = {}
    assert [pod for pod, _, _ in found(one)] == ["b", "c"]


def test_the_admin_port_is_the_one_of_the_slice() -> None:
    assert found(stand_ins.endpoint_slice({"a": "10.0.0.1"}, port=9999)) == [
        ("a", "10.0.0.1", 9999)
    ]
    unnamed = stand_ins.endpoint_slice({"a": "10.0.0.1"})
    unnamed["ports"] = [{"name": "api", "port": 8000}]
    assert found(unnamed) == [("a", "10.0.0.1", 9090)]


def test_an_address_of_the_sixth_version_is_bracketed() -> None:
    assert Address("a", "fd00::1", 9090).url == "http://[fd00::1]:9090/internal/window"


@pytest.fixture
async def served() -> AsyncIterator[dict[str, Any]]:
    """A router's admin port whose answer the test sets; yields answer and address."""
    state: dict[str, Any] = {"status": 200, "text": ""}

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=state["status"], text=state["text"])

    app = web.Application()
    app.router.add_get("/internal/window", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    state["address"] = Address("router-0", "127.0.0.1", port)
    async with aiohttp.ClientSession() as session:
        state["reader"] = routers.HttpReader(session, 2.0)
        yield state
    await runner.cleanup()


async def test_a_report_comes_back_as_it_was_sent(served: dict[str, Any]) -> None:
    sent = traffic.report("router-0", traffic.row(STATIONARY, 2))
    served["text"] = sent.model_dump_json(by_alias=True)
    assert await served["reader"](served["address"]) == sent


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        pytest.param(503, "", "said 503", id="status"),
        pytest.param(200, "{", "router router-0: window: ", id="no-json"),
        pytest.param(200, '{"pod": 1}', "router router-0: window: pod", id="wrong-type"),
    ],
)
async def test_a_bad_answer_names_the_pod(
    served: dict[str, Any], status: int, text: str, said: str
) -> None:
    served |= {"status": status, "text": text}
    with pytest.raises(routers.RouterError, match=said):
        await served["reader"](served["address"])


async def test_an_endless_answer_is_cut(
    served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "MAX_REPORT_BYTES", 1000)
    served["text"] = " " * 5000
    with pytest.raises(routers.RouterError, match="exceeds 1000 bytes"):
        await served["reader"](served["address"])


async def test_a_pod_that_is_gone_is_an_error_of_that_pod(served: dict[str, Any]) -> None:
    with pytest.raises(routers.RouterError, match="router gone"):
        await served["reader"](Address("gone", "127.0.0.1", 1))
