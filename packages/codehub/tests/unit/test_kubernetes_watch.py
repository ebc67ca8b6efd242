"""A watch whose connection is cut again and again: each one that worked starts the count of failures from zero."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from codehub.adapters.kubernetes import watch
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.errors import Expired
from codehub.adapters.kubernetes.objects import INSTALLATION, WORKSPACE, Claim, decode_claim
from codehub.adapters.kubernetes.watch import Informer
from codehub.domain.errors import BackendDown

_CUTS = 3  # the pause after a failure doubles


class CutConnections:
    """An API server behind a line that is cut after each event, or before it, `_CUTS` times. Then it stays."""

    def __init__(self, *, with_event: bool) -> None:
        self._with_event = with_event
        self.watches = self.checks = 0

    async def list_all(self, path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        return [], "1"

    async def check_namespace(self) -> None:
        """It exists."""

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, read_timeout_s: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.watches += 1
        yield self._events(self.watches)

    async def _events(self, number: int) -> AsyncIterator[bytes]:
        if self._with_event or number > _CUTS:
            yield added(number)
        if number > _CUTS:
            await asyncio.Event().wait()
        raise BackendDown("the connection was cut")


def added(number: int) -> bytes:
    labels = {INSTALLATION: "i", WORKSPACE: f"w{number}"}
    meta = {"name": f"c{number}", "uid": f"u{number}", "resourceVersion": str(number + 1), "labels": labels}
    return json.dumps({"type": "ADDED", "object": {"metadata": meta}}).encode() + b"\n"


class Forgetting(CutConnections):
    """An API server that has forgotten the version of its own list when the watch begins, `_CUTS` times."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__(with_event=True)
        self._at_once = at_once

    async def _events(self, number: int) -> AsyncIterator[bytes]:
        if number > _CUTS:
            yield added(number)
            await asyncio.Event().wait()
        if self._at_once:
            raise Expired("too old resource version")
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        yield json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_server_that_forgets_what_it_just_listed_is_unknown_and_is_not_listed_without_a_pause(
    at_once: bool,
) -> None:
    """By its status, or by an event of a watch that was accepted."""
    server = Forgetting(at_once=at_once)
    informer: Informer[Claim] = Informer(cast(ApiClient, server), "/claims", decode_claim, "", lambda: 0.0)
    said = set()
    try:
        async with asyncio.timeout(120):
            while not informer.known_of(f"w{_CUTS + 1}"):
                try:
                    await informer.objects()
                except BackendDown as error:
                    said.add(str(error))
                await asyncio.sleep(0.001)
        assert len(said) == 1, "the first time costs a list, and no doubt"
        assert "too old resource version" in said.pop()
        assert informer.lists == _CUTS + 1
        await informer.objects()
    finally:
        await informer.close()


class Restored(CutConnections):
    """An API server whose etcd was restored: it lists other objects, and is silent until it reaches the old version."""

    async def list_all(self, path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        listed = [json.loads(added(_CUTS + 1))["object"]] if self.watches else []
        return listed, "1" if self.watches else "1000"

    async def list_page(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        self.checks += 1
        items, version = await self.list_all(path, params)
        return {"kind": "List", "items": items[:1], "metadata": {"resourceVersion": version}}

    async def _events(self, number: int) -> AsyncIterator[bytes]:
        await asyncio.sleep(2 * watch._WATCH_S)
        events: tuple[bytes, ...] = ()
        for event in events:
            yield event


class Idle(Restored):
    """An API server that has nothing to say, not even a bookmark."""

    async def list_all(self, path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        return [], "1000"


async def test_a_kind_of_which_nothing_changes_is_neither_listed_again_nor_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_WATCH_S", 0.01)
    server = Idle(with_event=False)
    informer: Informer[Claim] = Informer(cast(ApiClient, server), "/claims", decode_claim, "", lambda: 0.0)
    try:
        async with asyncio.timeout(120):
            while server.watches < 12:
                assert await informer.objects() == {}
                await asyncio.sleep(0.001)
        assert informer.lists == 1
        assert 0 < server.checks < server.watches
    finally:
        await informer.close()


async def test_a_version_that_the_server_never_reaches_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_WATCH_S", 0.01)
    server = Restored(with_event=False)
    informer: Informer[Claim] = Informer(cast(ApiClient, server), "/claims", decode_claim, "", lambda: 0.0)
    try:
        assert await informer.of(f"w{_CUTS + 1}") == []
        async with asyncio.timeout(120):
            while not informer.known_of(f"w{_CUTS + 1}"):
                await asyncio.sleep(0.001)
        assert server.watches >= 2, "a dead connection alone is resumed"
    finally:
        await informer.close()


@pytest.mark.parametrize("with_event", [True, False])
async def test_connections_that_worked_are_resumed_at_once_and_those_that_did_not_are_unknown(
    with_event: bool,
) -> None:
    line = CutConnections(with_event=with_event)
    informer: Informer[Claim] = Informer(cast(ApiClient, line), "/claims", decode_claim, "", lambda: 0.0)
    unknown = 0
    try:
        async with asyncio.timeout(120):
            while not informer.known_of(f"w{_CUTS + 1}"):
                try:
                    await informer.objects()
                except BackendDown:
                    unknown += 1
                await asyncio.sleep(0.001)
        assert informer.lists == 1, "resumed, not listed again"
        assert (unknown == 0) is with_event
        assert len(informer.known_of("w1")) == int(with_event)
    finally:
        await informer.close()
