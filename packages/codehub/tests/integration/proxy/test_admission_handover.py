"""Signing in at the workspace's origin: the hand-over by ticket, the workspace cookie, and what they are worth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest
import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import new_id
from testing.codehub.proxy_access import NAVIGATION, World, world


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def test_opening_a_workspace_leads_through_the_dashboard_and_back_to_the_same_address(here: World) -> None:
    workspace_id = await here.workspace()
    browser = here.browser()
    sent = await browser.get(f"/w/{workspace_id}/a/b?x=1&y=%2F", headers=NAVIGATION)
    assert sent.status_code == 303
    assert sent.headers["referrer-policy"] == "no-referrer"
    to = urlsplit(sent.headers["location"])
    assert (to.netloc, to.path) == ("127.0.0.1:8000", f"/handover/{workspace_id}")
    assert parse_qs(to.query)["next"] == [f"/w/{workspace_id}/a/b?x=1&y=%2F"]
    cookie = sent.headers["set-cookie"]
    assert cookie.startswith("codehub_nonce=")
    assert "HttpOnly" in cookie
    assert f"Path=/w/{workspace_id}/" in cookie

    page = await here.owner.get(sent.headers["location"], headers=NAVIGATION)
    assert page.status_code == 200
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "handover.js" in page.text
    back = await here.hand_over(sent.headers["location"])
    assert back.status_code == 200
    address = back.json()["url"]
    assert address.startswith(f"http://localhost:{here.port}/w/{workspace_id}/a/b?x=1&y=%2F&codehub_ticket=")

    done = await browser.get(address.partition(str(here.port))[2], headers=NAVIGATION)
    assert done.status_code == 303
    assert done.headers["location"] == f"/w/{workspace_id}/a/b?x=1&y=%2F"
    kept = next(c for c in done.headers.get_list("set-cookie") if c.startswith("codehub_ws="))
    assert "HttpOnly" in kept
    assert "SameSite=Lax" in kept
    assert f"Path=/w/{workspace_id}/" in kept
    page = await browser.get(done.headers["location"], headers=NAVIGATION)
    assert page.status_code == 200
    assert "codehub_" not in page.text


async def test_signing_in_does_not_lead_to_another_host(database: Database) -> None:
    """Where a port has its own host, its paths begin anew: as a Location, this one named another host."""
    async with world(database, host_pattern="*.ws.example.org") as here:
        workspace_id, path = await here.workspace(), "//evil.example/x"
        origin = f"http://3000-{workspace_id}.ws.example.org:{here.port}"
        browser = here.browser(f"3000-{workspace_id}")
        sent = await browser.get(f"http://127.0.0.1:{here.port}{path}", headers=NAVIGATION)
        address = (await here.hand_over(sent.headers["location"])).json()["url"]
        assert address.startswith(f"{origin}{path}?codehub_ticket=")
        ticket = address.removeprefix(origin)
        nonce = sent.headers["set-cookie"].partition(";")[0]
        done = await browser.get(f"http://127.0.0.1:{here.port}{ticket}", headers={**NAVIGATION, "Cookie": nonce})
        assert done.status_code == 303
        assert urljoin(f"{origin}/", done.headers["location"]) == origin + path


async def test_nobody_signed_in_gets_no_ticket(here: World) -> None:
    workspace_id = await here.workspace()
    sent = await here.browser().get(f"/w/{workspace_id}/", headers=NAVIGATION)
    assert (await here.hand_over(sent.headers["location"], here.api.client())).status_code == 401


async def test_a_stolen_cookie_gets_no_ticket_and_opens_no_api(here: World) -> None:
    """What a listener on another port of the dashboard's host sees, which is the cookie alone."""
    workspace_id = await here.workspace()
    sent = await here.browser().get(f"/w/{workspace_id}/", headers=NAVIGATION)
    thief = here.api.client(cookie=f"session={here.owner.cookies['session']}")
    assert (await here.hand_over(sent.headers["location"], thief)).status_code == 401
    page = await thief.get(sent.headers["location"], headers=NAVIGATION)
    assert "codehub_ticket" not in page.text + str(page.headers)
    assert (await thief.get("/api/v1/workspaces")).status_code == 401
    assert (await thief.post("/api/v1/tokens", json={"name": "mine"})).status_code == 401
    assert (await thief.get("/api/v1/events")).status_code == 401
    guessed = here.api.client(cookie=f"session={here.owner.cookies['session']}", x_codehub_session_key="guessed")
    assert (await guessed.get("/api/v1/session")).status_code == 401


async def test_a_ticket_works_once(here: World) -> None:
    workspace_id = await here.workspace()
    browser = here.browser()
    address = await here.ticket_address(browser, f"/w/{workspace_id}/")
    nonce = browser.cookies["codehub_nonce"]
    assert (await browser.get(address, headers=NAVIGATION)).status_code == 303
    again = here.browser(Cookie=f"codehub_nonce={nonce}")
    assert (await again.get(address, headers=NAVIGATION)).status_code == 401


async def test_a_ticket_is_worth_nothing_in_another_browser(here: World) -> None:
    workspace_id = await here.workspace()
    address = await here.ticket_address(here.browser(), f"/w/{workspace_id}/")
    for cookie in ("", "codehub_nonce=other"):
        answer = await here.browser(Cookie=cookie).get(address, headers=NAVIGATION)
        assert answer.status_code == 401
        assert "codehub_ws" not in answer.headers.get("set-cookie", "")


async def test_a_ticket_is_worth_nothing_at_another_workspace(here: World) -> None:
    one, other = await here.workspace(), await here.workspace()
    browser = here.browser()
    address = await here.ticket_address(browser, f"/w/{one}/")
    nonce = browser.cookies["codehub_nonce"]
    answer = await here.browser(Cookie=f"codehub_nonce={nonce}").get(address.replace(one, other), headers=NAVIGATION)
    assert answer.status_code == 401


async def test_a_ticket_is_worth_nothing_after_a_minute(here: World) -> None:
    workspace_id = await here.workspace()
    browser = here.browser()
    address = await here.ticket_address(browser, f"/w/{workspace_id}/")
    async with here.database.transaction() as tx:
        await tx.execute("UPDATE proxy_tickets SET expires_at = expires_at - interval '61 seconds'")
    assert (await browser.get(address, headers=NAVIGATION)).status_code == 401


async def test_secrets_are_stored_as_hashes_only(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    async with here.database.transaction() as tx:
        row = await (await tx.execute("SELECT secret_hash FROM proxy_sessions")).fetchone()
    assert row is not None
    assert len(bytes(row["secret_hash"])) == 32
    assert browser.cookies["codehub_ws"].encode() not in bytes(row["secret_hash"])


@pytest.mark.parametrize("bad", ["http://evil.example/", "//evil.example/", "/\\evil", "/api/v1/tokens", "/w/../x"])
async def test_the_way_back_is_always_into_the_workspace(here: World, bad: str) -> None:
    workspace_id = await here.workspace()
    back = await here.hand_over(f"/handover/{workspace_id}?{urlencode({'nonce': '0' * 64, 'next': bad})}")
    assert back.status_code == 200
    assert back.json()["url"].startswith(f"http://localhost:{here.port}/w/{workspace_id}/?codehub_ticket=")


async def test_only_the_owner_gets_a_ticket(here: World) -> None:
    other = await here.api.user("other")
    workspace_id = await here.workspace(other)
    address = f"/handover/{workspace_id}?nonce={'0' * 64}"
    assert (await here.hand_over(address)).status_code == 403  # an administrator is not the owner
    missing = await here.hand_over(f"/handover/{new_id()}?nonce={'0' * 64}")
    assert missing.status_code == 404


async def test_a_hand_over_is_a_navigation_of_a_window_and_nothing_else(here: World) -> None:
    workspace_id = await here.workspace()
    address = f"/handover/{workspace_id}?nonce={'0' * 64}"
    for mode, dest in (("cors", "empty"), ("navigate", "iframe"), ("no-cors", "image")):
        answer = await here.owner.get(address, headers={"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest})
        assert answer.status_code == 403


async def test_without_a_cookie_anything_but_a_navigation_is_401(here: World) -> None:
    workspace_id = await here.workspace()
    browser = here.browser()
    for headers in ({"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, {"Accept": "*/*"}):
        answer = await browser.get(f"/w/{workspace_id}/api", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "UNAUTHORIZED"
    assert here.upstream.connections == 0


async def test_an_api_token_works_without_a_hand_over(here: World) -> None:
    workspace_id = await here.workspace()
    token = await here.token()
    answer = await here.browser(Authorization=f"Bearer {token}").get(f"/w/{workspace_id}/x")
    assert answer.status_code == 200
    assert token not in answer.text
    wrong = await here.browser(Authorization="Bearer cht_wrong").get(f"/w/{workspace_id}/x")
    assert wrong.status_code == 401


async def test_an_api_token_of_somebody_else_is_403(here: World) -> None:
    other = await here.api.user("other")
    workspace_id = await here.workspace(other)
    answer = await here.browser(Authorization=f"Bearer {await here.token()}").get(f"/w/{workspace_id}/x")
    assert answer.status_code == 403


async def test_a_cookie_opens_its_own_workspace_only(here: World) -> None:
    one, other = await here.workspace(), await here.workspace()
    browser = await here.signed_in(one)
    stolen = here.browser(Cookie=f"codehub_ws={browser.cookies['codehub_ws']}")
    assert (await stolen.get(f"/w/{one}/x")).status_code == 200
    assert (await stolen.get(f"/w/{other}/x")).status_code == 401


async def test_a_page_that_adds_cookies_of_our_name_locks_nobody_out(here: World) -> None:
    workspace_id = await here.workspace()
    secret = (await here.signed_in(workspace_id)).cookies["codehub_ws"]
    browser = here.browser(Cookie=f"codehub_ws=planted; codehub_ws={secret}")
    assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
