"""The decision table of docs/proxy.md by phase, for page navigations and other requests; addresses; origins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from codehub.ports.instances import Upstream
from testing.codehub.api import new_id, put_in_state
from testing.codehub.proxy_access import NAVIGATION, World, world

POLL = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


_ARCHIVED: dict[str, Any] = {"phase": "ARCHIVED", "desired_state": "ARCHIVED"}
CASES: dict[str, tuple[dict[str, Any], int, str, int]] = {
    "archived": ({**_ARCHIVED, "last_access_at": datetime(2026, 1, 1, tzinfo=UTC)}, 502, ">Restore<", 502),
    "never started": ({**_ARCHIVED, "last_access_at": None}, 502, ">Start<", 502),
    "pending": ({"phase": "PENDING", "desired_state": "ARCHIVED"}, 502, "Start", 502),
    "error": ({"phase": "ERROR", "error_reason": "Timeout"}, 502, "Start again", 502),
    "restoring": ({"phase": "ARCHIVED", "operation": "RESTORING"}, 503, "waking up", 503),
    "starting": ({"phase": "STANDBY", "operation": "STARTING"}, 503, "waking up", 503),
    "deleting": ({"phase": "DELETING", "desired_state": "DELETED"}, 404, "Workspace not found", 404),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_does_not_run_is_explained_and_not_woken(here: World, case: str) -> None:
    columns, status, words, other_status = CASES[case]
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    await put_in_state(here.database, workspace_id, **columns)
    del here.placed.upstreams[workspace_id]
    before = await here.row(workspace_id)
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert page.status_code == status
    assert words in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    poll = await browser.get(f"/w/{workspace_id}/api", headers=POLL)
    assert poll.status_code == other_status
    assert poll.json()["error"]["message"]
    after = await here.row(workspace_id)
    assert after["desired_state"] == before["desired_state"]


async def test_a_workspace_that_was_never_started_is_not_called_archived(here: World) -> None:
    workspace_id = await here.workspace(**_ARCHIVED, last_access_at=None)
    browser = await here.signed_in(workspace_id)
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert "not started yet" in page.text
    assert "archived</" not in page.text
    assert "estore" not in page.text


async def test_a_lost_home_is_for_an_administrator(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    await put_in_state(here.database, workspace_id, phase="ERROR", error_reason="DataLost")
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert "administrator" in page.text
    assert "action=start" not in page.text


async def test_a_navigation_wakes_a_sleeping_workspace_and_a_poll_does_not(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    long_ago = datetime.now(UTC) - timedelta(days=1)
    state = {"phase": "STANDBY", "desired_state": "STANDBY", "last_access_at": long_ago}
    await put_in_state(here.database, workspace_id, **state)
    for headers in (
        POLL,
        {**NAVIGATION, "Sec-Purpose": "prefetch"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ):
        poll = await browser.get(f"/w/{workspace_id}/", headers=headers)
        assert poll.status_code == 503
        assert poll.headers["retry-after"]
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert "waking up" in page.text
    row = await here.row(workspace_id)
    assert row["desired_state"] == "RUNNING"
    # Nothing is put to sleep that was just woken.
    assert row["last_access_at"] > long_ago + timedelta(hours=23)


async def test_a_token_wakes_with_any_request(here: World) -> None:
    workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
    answer = await here.browser(Authorization=f"Bearer {await here.token()}").post(f"/w/{workspace_id}/mcp")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert (await here.row(workspace_id))["desired_state"] == "RUNNING"


async def test_over_the_limit_the_page_lists_what_runs(here: World) -> None:
    running = [await here.workspace(), await here.workspace()]
    workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
    browser = await here.signed_in(workspace_id)
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert page.status_code == 502
    for other in running:
        assert f"http://127.0.0.1:8000/#/workspaces/{other}?action=stop" in page.text
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"


async def test_at_the_limit_of_the_installation_the_page_says_whose_workspaces_take_the_places(
    database: Database,
) -> None:
    async with world(database, LIMITS_MAX_RUNNING_GLOBAL="1") as here:
        other = await here.api.user("ada")
        running = await here.workspace(other)
        workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
        browser = await here.signed_in(workspace_id)
        page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
        assert page.status_code == 502
        assert "Other users' workspaces use all available places" in unescape(page.text)
        assert running not in page.text, "the workspaces of others are not shown"
        assert (await here.row(workspace_id))["desired_state"] == "STANDBY"
        await put_in_state(here.database, running, phase="STANDBY", desired_state="STANDBY")
        assert (await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)).status_code == 503
        assert (await here.row(workspace_id))["desired_state"] == "RUNNING"


async def test_at_the_limit_of_the_installation_the_page_lists_ones_own_workspaces(database: Database) -> None:
    async with world(database, LIMITS_MAX_RUNNING_GLOBAL="2", LIMITS_MAX_RUNNING_PER_USER="5") as here:
        others, own = await here.workspace(await here.api.user("ada")), await here.workspace()
        workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
        page = await (await here.signed_in(workspace_id)).get(f"/w/{workspace_id}/", headers=NAVIGATION)
        assert page.status_code == 502
        assert f"/#/workspaces/{own}?action=stop" in page.text
        assert others not in page.text
        assert (await here.row(workspace_id))["desired_state"] == "STANDBY"


@pytest.mark.parametrize("work", ["a navigation", "a request of a page at work", "a token"])
async def test_work_keeps_a_workspace_that_is_about_to_sleep_and_background_traffic_does_not(
    here: World, work: str
) -> None:
    workspace_id = await here.workspace(desired_state="STANDBY")
    token = await here.token()
    browser = await here.signed_in(workspace_id)
    for _ in range(2):
        assert (await browser.get(f"/w/{workspace_id}/poll", headers=POLL)).status_code == 200
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"
    # At once, by the same browser: what was decided about a poll a moment ago is not remembered for it.
    match work:
        case "a navigation":
            answer = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
        case "a token":
            bearer = {"Authorization": f"Bearer {token}"}
            answer = await here.browser(workspace_id).get(f"/w/{workspace_id}/poll", headers=bearer)
        case _:
            answer = await browser.get(f"/w/{workspace_id}/save", headers=POLL)
    assert answer.status_code == 200
    assert (await here.row(workspace_id))["desired_state"] == "RUNNING"


async def test_on_its_way_up_it_is_proxied_as_soon_as_it_answers(here: World) -> None:
    workspace_id = await here.workspace(phase="STANDBY", desired_state="RUNNING", operation="STARTING")
    browser = await here.signed_in(workspace_id)
    upstream = here.placed.upstreams.pop(workspace_id)
    assert (await browser.get(f"/w/{workspace_id}/api", headers=POLL)).status_code == 503
    here.placed.upstreams[workspace_id] = upstream
    assert (await browser.get(f"/w/{workspace_id}/api", headers=POLL)).status_code == 200


async def test_a_running_workspace_that_does_not_answer_has_a_page_that_retries(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    here.placed.upstreams[workspace_id] = Upstream("gone", "127.0.0.1", 1)
    page = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert page.status_code == 502
    assert "does not answer" in page.text
    assert (await browser.get(f"/w/{workspace_id}/x", headers=POLL)).status_code == 502
    status = (await browser.get(f"/w/{workspace_id}/_codehub/status", headers=POLL)).json()
    assert (status["go"], status["page"]) == (False, "away")
    here.placed.upstreams[workspace_id] = Upstream("back", "127.0.0.1", here.upstream.port)
    status = (await browser.get(f"/w/{workspace_id}/_codehub/status", headers=POLL)).json()
    assert status["go"] is True
    assert (await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)).status_code == 200


async def test_an_instance_that_moved_is_found_again_within_the_same_request(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    here.placed.upstreams[workspace_id] = Upstream("old", "127.0.0.1", 1)
    assert (await browser.get(f"/w/{workspace_id}/x", headers=POLL)).status_code == 502
    # The proxy remembers the old place for a moment; the refused connection makes it ask again.
    here.placed.upstreams[workspace_id] = Upstream("new", "127.0.0.1", here.upstream.port)
    assert (await browser.get(f"/w/{workspace_id}/x", headers=POLL)).status_code == 200


async def test_the_pages_status_says_how_far_it_is(here: World) -> None:
    workspace_id = await here.workspace(phase="ARCHIVED", operation="RESTORING")
    browser = await here.signed_in(workspace_id)
    async with here.database.transaction() as tx:
        await tx.execute(
            """UPDATE workspaces SET progress = '{"step": "restore", "done": 5, "total": 10, "unit": "bytes"}'"""
        )
    status = (await browser.get(f"/w/{workspace_id}/_codehub/status", headers=POLL)).json()
    assert (status["go"], status["page"], status["done"], status["total"]) == (False, "waking", 5, 10)
    assert (await here.browser().get(f"/w/{workspace_id}/_codehub/status", headers=POLL)).status_code == 401


async def test_addresses_that_are_no_workspaces(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    moved = await browser.get(f"/w/{workspace_id}?x=1", headers=NAVIGATION)
    assert (moved.status_code, moved.headers["location"]) == (308, f"/w/{workspace_id}/?x=1")
    token = {"Authorization": f"Bearer {await here.token()}"}
    for path in ("/w/", "/w/nonsense/", f"/w/{workspace_id.upper()}/", f"/w/{new_id()}/", "/elsewhere", "/w/..%2f/"):
        assert (await here.browser().get(path, headers=token)).status_code == 404
    assert (await browser.get("/", headers=NAVIGATION)).headers["location"] == "http://127.0.0.1:8000/"
    assert (await browser.get("/health")).json() == {"status": "ok"}
    assert "codehub_proxy_requests_total" in (await browser.get("/metrics")).text


async def test_another_host_name_is_not_served(here: World) -> None:
    """127.0.0.1 is the dashboard's: cookies do not know ports."""
    workspace_id = await here.workspace()
    secret = (await here.signed_in(workspace_id)).cookies["codehub_ws"]
    browser = here.browser(Cookie=f"codehub_ws={secret}")
    wrong = {"Host": f"127.0.0.1:{here.port}"}
    moved = await browser.get(f"/w/{workspace_id}/x?y", headers={**NAVIGATION, **wrong})
    assert (moved.status_code, moved.headers["location"]) == (
        307,
        f"http://localhost:{here.port}/w/{workspace_id}/x?y",
    )
    assert (await browser.get(f"/w/{workspace_id}/x", headers=wrong)).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:8000", "null", "http://localhost:1"])
async def test_a_foreign_origin_may_neither_change_anything_nor_open_a_socket(here: World, origin: str) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Origin": origin}
    assert (await browser.post(f"/w/{workspace_id}/x", headers={"Origin": origin})).status_code == 403
    assert (await browser.get(f"/w/{workspace_id}/x", headers=upgrade)).status_code == 403
    # Also once the decision is remembered.
    assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
    assert (await browser.post(f"/w/{workspace_id}/x", headers={"Origin": origin})).status_code == 403
    assert (await browser.get(f"/w/{workspace_id}/x", headers=upgrade)).status_code == 403
    own = {"Origin": f"http://localhost:{here.port}"}
    assert (await browser.post(f"/w/{workspace_id}/x", headers=own)).status_code == 200


async def test_each_workspace_has_its_own_host_where_asked(database: Database) -> None:
    async with world(database, host_pattern="*.localhost") as here:
        one, other = await here.workspace(), await here.workspace()
        browser = await here.signed_in(one)
        assert (await browser.get(f"/w/{one}/x", headers=POLL)).status_code == 200
        secret = browser.cookies["codehub_ws"]
        elsewhere = here.browser(other, Cookie=f"codehub_ws={secret}")
        assert (await elsewhere.get(f"/w/{one}/x", headers=POLL)).status_code == 421
        assert (await elsewhere.get(f"/w/{other}/x", headers=POLL)).status_code == 401
        # A page of one workspace is another origin to the other.
        theirs = {"Origin": f"http://{here.authority(other)}"}
        assert (await browser.post(f"/w/{one}/x", headers=theirs)).status_code == 403
        assert (await browser.get("/", headers=NAVIGATION)).headers["location"] == f"/w/{one}/"
