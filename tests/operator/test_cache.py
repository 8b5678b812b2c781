"""The watch cache: the newer version wins, own writes count at once, what is gone goes."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from cascade_operator import cache, errors, kube

Body = dict[str, Any]


def pod(name: str, version: int, **fields: Any) -> Body:
    return {
        "metadata": {
            "name": name, "namespace": "demo", "uid": f"uid-{name}",
            "resourceVersion": str(version), "managedFields": [{}],
        },
        **fields,
    }  # fmt: skip


class ScriptedApi:
    """Lists and watches as written down; a watch at the end of the script stays silent."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists = lists
        self.watches = watches
        self.asked: list[Mapping[str, str]] = []

    async def get(self, path: str, **query: str) -> Body:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        items, version = answer[:2]
        more = {"continue": answer[2]} if len(answer) > 2 else {}
        return {"metadata": {"resourceVersion": str(version), **more}, "items": items}

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Body]:
        self.asked.append(query)
        if not self.watches:
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            kind, body = event
            yield {"type": kind, "object": body}


class Watched:
    """A running cache and what it has told."""

    def __init__(self, lists: list[Any], watches: list[Any], **options: Any) -> None:
        self.api = ScriptedApi(lists, watches)
        self.changes: list[tuple[str | None, str | None]] = []
        self.cache = cache.Cache(
            self.api,  # type: ignore[arg-type]
            kube.POD,
            self._changed,
            draws=random.Random(0),
            **options,
        )

    def _changed(self, source: cache.Cache, before: Body | None, after: Body | None) -> None:
        def version(body: Body | None) -> str | None:
            return body["metadata"]["resourceVersion"] if body is not None else None

        self.changes.append((version(before), version(after)))

    async def until_silent(self) -> None:
        """Runs until the script is at its end."""
        task = asyncio.create_task(self.cache.run())
        try:
            async with asyncio.timeout(5):
                while self.api.watches or self.api.lists or not self.cache.is_synced:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.02)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def versions(self) -> dict[str, int]:
        return {b["metadata"]["name"]: cache.version_of(b) for b in self.cache.all()}


async def test_list_then_watch() -> None:
    watched = Watched(
        [([pod("a", 1), pod("b", 2)], 5)],
        [[("MODIFIED", pod("a", 6)), ("DELETED", pod("b", 7)), ("ADDED", pod("c", 8))]],
    )
    await watched.until_silent()
    assert watched.versions() == {"a": 6, "c": 8}
    assert watched.changes == [(None, "1"), (None, "2"), ("1", "6"), ("2", None), (None, "8")]
    assert watched.api.asked[0]["resourceVersion"] == "5"
    assert "managedFields" not in watched.cache.of("demo")[0]["metadata"]


async def test_a_long_list_comes_in_pages() -> None:
    watched = Watched([([pod("a", 1)], 5, "next"), ([pod("b", 2)], 5)], [])
    await watched.until_silent()
    assert watched.versions() == {"a": 1, "b": 2}


async def test_a_stream_that_ends_is_resumed_where_it_was() -> None:
    watched = Watched(
        [([], 5)], [[("ADDED", pod("a", 6)), ("BOOKMARK", pod("", 9))], [("ADDED", pod("b", 10))]]
    )
    await watched.until_silent()
    assert [query["resourceVersion"] for query in watched.api.asked[:2]] == ["5", "9"]
    assert watched.versions() == {"a": 6, "b": 10}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(("ERROR", {"code": 410, "message": "too old"}), id="in the stream"),
        pytest.param(errors.ConflictError("WATCH", 410, "too old"), id="as answer"),
    ],
)
async def test_an_expired_version_is_listed_again_and_what_is_gone_goes(error: Any) -> None:
    watched = Watched(
        [([pod("a", 1), pod("b", 2)], 5), ([pod("b", 2), pod("c", 30)], 40)], [[error]]
    )
    await watched.until_silent()
    assert watched.versions() == {"b": 2, "c": 30}
    assert ("1", None) in watched.changes
    assert watched.changes.count((None, "2")) == 1


async def test_a_broken_stream_is_tried_again_without_a_new_list() -> None:
    broken = errors.UnavailableError("WATCH", 0, "connection reset")
    watched = Watched([([pod("a", 1)], 5)], [[broken], [("MODIFIED", pod("a", 6))]])
    await watched.until_silent()
    assert watched.versions() == {"a": 6}


async def test_a_list_that_fails_is_tried_again() -> None:
    busy = errors.UnavailableError("GET", 429, "storage is (re)initializing")
    watched = Watched([busy, ([pod("a", 1)], 5)], [])
    await watched.until_silent()
    assert watched.versions() == {"a": 1}


async def test_an_own_write_counts_at_once_and_an_older_event_changes_nothing() -> None:
    watched = Watched([], [])
    watched.cache.remember(pod("a", 7))
    assert watched.changes == []
    watched.cache._take({"type": "MODIFIED", "object": pod("a", 6)})
    watched.cache._take({"type": "DELETED", "object": pod("a", 6)})
    assert watched.versions() == {"a": 7}
    watched.cache._take({"type": "MODIFIED", "object": pod("a", 7)})
    assert watched.changes == []
    watched.cache._take({"type": "MODIFIED", "object": pod("a", 8)})
    assert watched.changes == [("7", "8")]


async def test_another_watch_may_show_newer_versions_of_known_objects_only() -> None:
    watched = Watched([], [])
    watched.cache.remember(pod("a", 7))
    watched.cache.offer(pod("a", 8))
    watched.cache.offer(pod("gone", 9))
    assert watched.versions() == {"a": 8}
    assert watched.changes == [("7", "8")]


async def test_what_the_operator_deleted_is_forgotten_unless_it_was_made_anew() -> None:
    watched = Watched([], [])
    watched.cache.remember(pod("a", 7))
    anew = pod("b", 9)
    watched.cache.remember(anew)
    watched.cache.forget(pod("a", 7))
    old = pod("b", 8)
    old["metadata"]["uid"] = "uid-of-the-former"
    watched.cache.forget(old)
    assert watched.versions() == {"b": 9}


async def test_reduced_objects_can_be_dropped_and_come_back() -> None:
    def only_running(body: Body) -> Body | None:
        return body if body.get("running") else None

    watched = Watched([], [], reduce=only_running)
    for version, running in ((1, False), (2, True), (3, False), (4, True)):
        watched.cache._take({"type": "MODIFIED", "object": pod("a", version, running=running)})
    assert watched.changes == [(None, "2"), ("2", None), (None, "4")]
