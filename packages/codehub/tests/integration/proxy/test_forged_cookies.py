"""Cookies of CodeHub's names that a page on another host of the site has set: they sign nobody in and keep nobody out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from codehub.domain.limits import RunningLimits
from codehub.services.workspace_access import WorkspaceAccess
from testing.codehub.proxy_access import NAVIGATION, World, world

# With the real one as many as a browser keeps of a site. The real one is last: the others have longer paths.
FORGED = [f"forged{number}" for number in range(179)]


def cookies(name: str, *values: str) -> str:
    return "; ".join(f"{name}={value}" for value in values)


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database, CODEHUB_PORT_SHARING="link") as made:
        yield made


async def test_as_many_forged_workspace_cookies_as_a_browser_keeps_lock_nobody_out(here: World) -> None:
    workspace_id = await here.workspace()
    secret = (await here.signed_in(workspace_id)).cookies["codehub_ws"]
    browser = here.browser(Cookie=cookies("codehub_ws", *FORGED, secret))
    for _ in range(2):  # decided, then from the cache
        assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200


async def test_forged_nonces_do_not_keep_a_browser_from_signing_in(here: World) -> None:
    workspace_id = await here.workspace()
    browser = here.browser()
    address = await here.ticket_address(browser, f"/w/{workspace_id}/")
    nonce = browser.cookies["codehub_nonce"]
    attacked = here.browser(Cookie=cookies("codehub_nonce", *FORGED, nonce))
    assert (await attacked.get(address, headers=NAVIGATION)).status_code == 303


async def test_a_guest_who_plants_the_own_cookie_does_not_keep_the_owner_out(here: World) -> None:
    """A guest of a shared port has a valid cookie for the workspace, which does not open its IDE."""
    workspace_id = await here.workspace()
    path = f"/api/v1/workspaces/{workspace_id}/ports/3000"
    assert (await here.owner.patch(path, json={"share": "users"})).is_success
    guest = await here.api.user("guest")
    opened = here.browser()
    sent = await opened.get(f"/w/{workspace_id}/port/3000/", headers=NAVIGATION)
    back = await here.hand_over(sent.headers["location"], guest)
    assert back.status_code == 200, back.text
    assert (await opened.get(back.json()["url"].partition(str(here.port))[2], headers=NAVIGATION)).status_code == 303
    planted = opened.cookies["codehub_ws"]
    secret = (await here.signed_in(workspace_id)).cookies["codehub_ws"]
    for sent_cookies in (cookies("codehub_ws", planted, secret), cookies("codehub_ws", secret, planted)):
        assert (await here.browser(Cookie=sent_cookies).get(f"/w/{workspace_id}/x")).status_code == 200
    assert (await here.browser(Cookie=cookies("codehub_ws", planted)).get(f"/w/{workspace_id}/x")).status_code == 403


async def test_forged_links_do_not_keep_a_guest_out_of_a_shared_port(here: World) -> None:
    workspace_id = await here.workspace()
    path = f"/api/v1/workspaces/{workspace_id}/ports/3000"
    assert (await here.owner.patch(path, json={"share": "link"})).is_success
    url = (await here.owner.post(f"{path}/links", json={})).json()["url"]
    link = url.partition("codehub_link=")[2]
    access = WorkspaceAccess(here.database, RunningLimits(1, 1), lambda: datetime.now(UTC))
    forged = [value.encode() for value in FORGED]
    for sent, used in (([*forged, link.encode()], link.encode()), (forged, None)):
        assert await access.may_open_port(workspace_id, 3000, user_id=None, links=sent) == used


async def test_with_https_and_own_hosts_no_other_host_can_set_the_cookies(database: Database) -> None:
    secure: dict[str, Any] = {
        "CODEHUB_WORKSPACE_BASE_URL": "https://ws.example.org",
        "CODEHUB_PUBLIC_BASE_URL": "https://example.org",
    }
    async with world(database, host_pattern="*.ws.example.org", **secure) as here:
        workspace_id = await here.workspace()
        browser = here.browser(Host=f"{workspace_id}.ws.example.org")
        sent = await browser.get(f"/w/{workspace_id}/", headers=NAVIGATION)
        assert sent.status_code == 303, sent.text
        nonce = sent.headers["set-cookie"].partition(";")[0].partition("=")[2]
        assert sent.headers["set-cookie"].startswith(f"__Host-codehub_nonce={nonce}; Path=/; HttpOnly;")
        back = (await here.hand_over(sent.headers["location"])).json()["url"]
        ticket = f"/w/{workspace_id}/?{urlsplit(back).query}"
        done = await browser.get(ticket, headers={**NAVIGATION, "Cookie": f"__Host-codehub_nonce={nonce}"})
        assert done.status_code == 303, done.text
        kept = next(c for c in done.headers.get_list("set-cookie") if c.startswith("__Host-codehub_ws="))
        # What browsers require of the prefix.
        assert "; Path=/;" in kept
        assert "; Secure" in kept
        assert "domain" not in kept.lower()
        secret = kept.partition(";")[0].partition("=")[2]
        shown = await browser.get(f"/w/{workspace_id}/x", headers={"Cookie": f"__Host-codehub_ws={secret}; theirs=1"})
        assert shown.status_code == 200
        # The scripted instance answers with what it received.
        assert "theirs=1" in shown.text
        assert "codehub_" not in shown.text
        # Another host of the site can set this one.
        assert (
            await browser.get(f"/w/{workspace_id}/y", headers={"Cookie": f"codehub_ws={secret}"})
        ).status_code == 401
