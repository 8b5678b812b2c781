"""Leadership: one at a time, no write after the renew deadline, no trust in other clocks."""

import asyncio
import copy
from typing import Any

import pytest

from cascade_operator import errors, kube, lease
from tests.operator import samples
from tests.operator.memory import MemoryApi

PATH = kube.LEASE.path("cascade-system", "cascade-operator")


class Moment:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class LeaseApi(MemoryApi):
    """Refuses a write that is based on an older version, as the API server does."""

    async def merge(self, path: str, body: dict[str, Any], manager: str) -> dict[str, Any]:
        live = self.objects[path]["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion") != live:
            raise errors.ConflictError(f"PATCH {path}", 409, "the object has been modified")
        change = copy.deepcopy(body)
        del change["metadata"]["resourceVersion"]
        return await super().merge(path, change, manager)


def leadership(api: MemoryApi, moment: Moment, name: str = "operator-0") -> lease.Leadership:
    settings = samples.settings(pod_name=name)
    return lease.Leadership(api, settings, moment, moment)  # type: ignore[arg-type]


async def test_the_first_one_leads_and_the_second_waits() -> None:
    api, moment = LeaseApi(), Moment()
    first, second = leadership(api, moment), leadership(api, moment, "operator-1")
    assert await first._try()
    assert not await second._try()
    assert (first.is_leading, second.is_leading) == (True, False)
    assert api.objects[PATH]["spec"]["holderIdentity"] == "operator-0"


async def test_writing_ends_at_the_renew_deadline_although_the_lease_still_runs() -> None:
    api, moment = LeaseApi(), Moment()
    first = leadership(api, moment)
    await first._try()
    moment.now += 19.9
    assert first.is_leading
    moment.now += 0.2
    assert not first.is_leading


async def test_a_slow_answer_counts_from_the_request() -> None:
    api, moment = LeaseApi(), Moment()
    first = leadership(api, moment)

    async def slow(path: str, **query: str) -> dict[str, Any]:
        moment.now += 7
        raise errors.NotFoundError("GET", 404, "none")

    api.get = slow  # type: ignore[method-assign]
    await first._try()
    moment.now += 13.5
    assert not first.is_leading


async def test_a_lease_is_taken_over_only_after_it_has_not_changed_for_its_duration() -> None:
    api, moment = LeaseApi(), Moment()
    first, second = leadership(api, moment), leadership(api, moment, "operator-1")
    await first._try()
    assert not await second._try()
    moment.now += 29
    assert not await second._try()
    await first._try()  # renewed: the time starts anew
    assert not await second._try()
    moment.now += 29
    assert not await second._try()
    moment.now += 2
    assert await second._try()
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 2


async def test_two_that_take_over_at_once_do_not_both_lead() -> None:
    api, moment = LeaseApi(), Moment()
    gone = leadership(api, moment, "gone")
    await gone._try()
    both = [leadership(api, moment, f"operator-{n}") for n in range(2)]
    for each in both:
        await each._try()
    moment.now += 31
    real = api.get
    seen = await real(PATH)

    async def stale(path: str, **query: str) -> dict[str, Any]:
        return copy.deepcopy(seen)

    api.get = stale  # type: ignore[method-assign]
    assert [await each._try() for each in both] == [True, False]


async def test_another_name_in_the_lease_ends_leadership_at_once() -> None:
    api, moment = LeaseApi(), Moment()
    first = leadership(api, moment)
    await first._try()
    api.objects[PATH]["spec"]["holderIdentity"] = "another"
    await first._try()
    assert not first.is_leading


async def test_a_server_that_does_not_answer_costs_leadership_only_at_the_deadline() -> None:
    api, moment = LeaseApi(), Moment()
    first = leadership(api, moment)
    await first._try()
    api.refusals = {"GET": errors.UnavailableError("GET", 0, "connection refused")}
    moment.now += 10
    assert not await first._try()
    assert first.is_leading


async def test_keeping_raises_once_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    api, moment = LeaseApi(), Moment()
    first = leadership(api, moment)
    await first._try()
    api.refusals = {"GET": errors.UnavailableError("GET", 0, "connection refused")}

    async def passes(seconds: float) -> None:
        moment.now += seconds

    monkeypatch.setattr(asyncio, "sleep", passes)
    with pytest.raises(errors.LeadershipLostError, match="20 s"):
        await first.keep()


async def test_a_released_lease_is_free_at_once() -> None:
    api, moment = LeaseApi(), Moment()
    first, second = leadership(api, moment), leadership(api, moment, "operator-1")
    await first._try()
    await first.release()
    assert not first.is_leading
    assert await second._try()
