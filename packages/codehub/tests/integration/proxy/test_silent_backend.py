"""A backend that accepts every request and answers none. What runs there stays open; others get an answer soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import blocked_column
from codehub.domain.model import Blocked, ErrorReason
from codehub.proxy.admission import cache, targets
from testing.codehub.proxy_access import NAVIGATION, World, world
from testing.codehub.rawhttp import Peer

# The test's own deadline: far below the time after which a backend's client gives up by itself.
SOON_S = 25.0
BLOCKED = Blocked(
    ErrorReason.UNREACHABLE,
    "process does not answer since 2026-11-17 19:50 UTC: no answer in time",
    datetime(2026, 11, 17, 19, 50, tzinfo=UTC),
)


def answer_ok(peer: Peer) -> None:
    while True:
        peer.read_message()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        made.upstream.script = answer_ok
        yield made


@pytest.mark.parametrize("fault", ["hangs", "is down"])
async def test_a_workspace_that_runs_stays_open_while_its_backend(
    here: World, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # Each request is decided, and each decision asks the backend.
    monkeypatch.setattr(targets, "BELIEVED_S", 0.0)
    monkeypatch.setattr(cache, "FRESH_S", -1.0)
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    assert (await browser.get(f"/w/{workspace_id}/before")).status_code == 200
    here.placed.down = fault == "is down"
    here.placed.hung = asyncio.Event() if fault == "hangs" else None
    async with asyncio.timeout(SOON_S):
        for number in range(10):  # only the first waits
            assert (await browser.get(f"/w/{workspace_id}/{number}")).status_code == 200


async def test_a_workspace_whose_address_is_not_known_answers_soon_and_names_the_backend(here: World) -> None:
    workspace_id = await here.workspace(blocked=Jsonb(blocked_column(BLOCKED)))
    here.placed.hung = asyncio.Event()
    browser = await here.signed_in(workspace_id)
    async with asyncio.timeout(SOON_S):
        page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
        program = await browser.get(f"/w/{workspace_id}/x")
    assert (page.status_code, program.status_code) == (502, 502)
    assert BLOCKED.message in page.text
    assert program.json()["error"]["message"] == BLOCKED.message
    assert "Retry-After" in program.headers
    here.placed.hung.set()
    async with asyncio.timeout(60):
        while (await browser.get(f"/w/{workspace_id}/x")).status_code != 200:
            await asyncio.sleep(0.1)


async def test_a_backend_is_named_before_its_card_says_so(here: World) -> None:
    workspace_id = await here.workspace()
    here.placed.hung = asyncio.Event()
    browser = await here.signed_in(workspace_id)
    async with asyncio.timeout(SOON_S):
        page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert page.status_code == 502
    assert "process does not answer. Your files are safe." in page.text


async def test_a_page_that_waits_for_a_start_says_which_backend_does_not_answer(here: World) -> None:
    workspace_id = await here.workspace(phase="STANDBY", operation="STARTING", blocked=Jsonb(blocked_column(BLOCKED)))
    browser = await here.signed_in(workspace_id)
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    status = await browser.get(f"/w/{workspace_id}/_codehub/status")
    assert BLOCKED.message in page.text
    assert status.json()["step"] == BLOCKED.message
