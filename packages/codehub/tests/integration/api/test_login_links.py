"""One-time sign-in links: once, within a minute, never more than the token, and never behind anybody's back."""

from __future__ import annotations

import asyncio
import re
from html import unescape

import httpx
import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, new_id, put_in_state, running_api

# What a browser sends when a program, and no page, opens an address.
BY_PROGRAM = {"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


async def token_client(api: Api, **token: object) -> httpx.AsyncClient:
    ada = await api.user("ada")
    minted = await ada.post("/api/v1/tokens", json={"name": "cli", **token})
    return api.client(authorization=f"Bearer {minted.json()['token']}")


async def link_of(client: httpx.AsyncClient, **body: object) -> str:
    answer = await client.post("/api/v1/login-links", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["url"])


async def opened(browser: httpx.AsyncClient, url: str) -> httpx.Response:
    """As a browser opens it: the page's script keeps the session's key."""
    answer = await browser.get(url)
    if found := re.search(r'codehub-session-key" content="([^"]+)"', answer.text):
        browser.headers["X-CodeHub-Session-Key"] = found[1]
    return answer


def goes_on_to(answer: httpx.Response) -> str:
    found = re.search(r'codehub-next" content="([^"]+)"', answer.text)
    assert found, answer.text
    return unescape(found[1])


async def whoami(browser: httpx.AsyncClient) -> str | None:
    user = (await browser.get("/api/v1/whoami")).json()["user"]
    return user["username"] if user else None


async def test_a_link_opened_by_a_program_signs_in_and_goes_on_to_the_workspace(api: Api) -> None:
    client = await token_client(api)
    made = (await client.post("/api/v1/workspaces", json={"name": "one"})).json()
    browser = api.client(**BY_PROGRAM)
    answer = await opened(browser, await link_of(client, workspace_id=made["id"]))
    assert (answer.status_code, goes_on_to(answer)) == (200, made["url"])
    assert answer.headers["cache-control"] == "no-store"
    assert await whoami(browser) == "ada"


async def test_a_link_opens_the_clone_of_a_workspaces_repository(database: Database) -> None:
    async with running_api(database, config={"folder_addresses": {"code-server": "?folder={home}/{folder}"}}) as api:
        client = await token_client(api)
        made = (await client.post("/api/v1/workspaces", json={"name": "one"})).json()
        await put_in_state(database, made["id"], setup=Jsonb({"home": "/home/coder", "folder": "app"}))
        cloned = made["url"] + "?folder=/home/coder/app"
        browser = api.client(**BY_PROGRAM)
        signed_in = await opened(browser, await link_of(client, workspace_id=made["id"]))
        assert goes_on_to(signed_in) == cloned
        again = await browser.get(await link_of(client, workspace_id=made["id"]))
        assert (again.status_code, again.headers["location"]) == (303, cloned)


async def test_of_many_browsers_that_open_one_link_at_once_one_is_signed_in(api: Api) -> None:
    url = await link_of(await token_client(api))
    browsers = [api.client(**BY_PROGRAM) for _ in range(8)]
    answers = await asyncio.gather(*(opened(browser, url) for browser in browsers))
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 7
    assert [await whoami(browser) for browser in browsers].count("ada") == 1


async def test_a_link_is_over_after_a_minute(api: Api) -> None:
    client = await token_client(api)
    url, in_time = await link_of(client), await link_of(client)
    api.clock.forward(seconds=59)
    assert (await opened(api.client(**BY_PROGRAM), in_time)).status_code == 200
    api.clock.forward(seconds=2)
    browser = api.client(**BY_PROGRAM)
    assert (await browser.get(url)).status_code == 401
    assert (await browser.post(url)).status_code == 401
    assert await whoami(browser) is None


@pytest.mark.parametrize("how", ["new password", "reset", "disabled for a while", "signed out", "ended elsewhere"])
async def test_a_session_that_was_ended_does_not_come_back_by_a_link_that_it_made(api: Api, how: str) -> None:
    """Whoever has a stolen session could make one link after the other, and use the last one."""
    ada, thief = await api.user("ada"), await api.signed_in("ada", "ada-ada")
    ada_id = (await ada.get("/api/v1/session")).json()["user"]["id"]
    admin, url = await api.signed_in(), await link_of(thief)
    user = f"/api/v1/users/{ada_id}"
    match how:
        case "new password":
            body = {"current_password": "ada-ada", "new_password": "another-one"}
            assert (await ada.post("/api/v1/password", json=body)).status_code == 204
        case "reset":
            assert (await admin.patch(user, json={"password": "another-one"})).status_code == 200
        case "disabled for a while":
            for disabled in (True, False):
                assert (await admin.patch(user, json={"disabled": disabled})).status_code == 200
        case "signed out":
            assert (await thief.post("/api/v1/logout")).status_code == 204
        case _:
            assert (await ada.delete("/api/v1/sessions")).status_code in (200, 204)
    browser = api.client(**BY_PROGRAM)
    assert (await opened(browser, url)).status_code == 401
    assert await whoami(browser) is None


@pytest.mark.parametrize(
    "headers",
    [
        {**BY_PROGRAM, "sec_fetch_site": "cross-site"},
        {**BY_PROGRAM, "sec_fetch_dest": "iframe"},
        {**BY_PROGRAM, "sec_purpose": "prefetch"},
        {},
    ],
    ids=["from a page", "in a frame", "prefetched", "by a preview"],
)
async def test_a_link_that_a_page_led_to_asks_first(api: Api, headers: dict[str, str]) -> None:
    url = await link_of(await token_client(api))
    browser = api.client(**headers)
    confirmation = await browser.get(url)
    assert confirmation.status_code == 200
    assert "Sign in as ada" in confirmation.text
    assert await whoami(browser) is None
    # Asking used nothing up: whoever says yes is signed in.
    confirmed = await api.client(origin="http://127.0.0.1:8000", sec_fetch_site="same-origin").post(url)
    assert confirmed.status_code == 200
    assert "codehub-session-key" in confirmed.text


async def test_a_foreign_page_cannot_confirm_for_anybody(api: Api) -> None:
    url = await link_of(await token_client(api))
    assert (await api.client(origin="http://evil.example").post(url)).status_code == 403
    assert (await api.client(sec_fetch_site="cross-site").post(url)).status_code == 403


async def test_a_browser_signed_in_as_somebody_else_is_asked_and_told(api: Api) -> None:
    url = await link_of(await token_client(api))
    bob = await api.user("bob")
    bob.headers.update({name.replace("_", "-"): value for name, value in BY_PROGRAM.items()})
    confirmation = await bob.get(url)
    assert "You are signed in as bob now" in confirmation.text
    assert await whoami(bob) == "bob"


async def test_a_browser_signed_in_as_the_same_user_keeps_its_session(api: Api) -> None:
    url = await link_of(await token_client(api))
    ada = await api.signed_in("ada", "ada-ada")
    before = ada.cookies["session"]
    ada.headers.update({name.replace("_", "-"): value for name, value in BY_PROGRAM.items()})
    assert (await ada.get(url)).status_code == 303
    assert ada.cookies["session"] == before
    assert (await ada.get(url)).status_code == 401


async def test_the_session_of_a_link_may_do_no_more_than_the_token(api: Api) -> None:
    client = await token_client(api)
    browser = api.client(**BY_PROGRAM)
    await opened(browser, await link_of(client))
    assert (await browser.post("/api/v1/tokens", json={"name": "more"})).status_code == 403
    passwords = {"current_password": "ada-ada", "new_password": "another-one"}
    assert (await browser.post("/api/v1/password", json=passwords)).status_code == 403
    assert (await browser.get("/api/v1/workspaces")).status_code == 200
    # Nor does a link made from that session.
    again = api.client(**BY_PROGRAM)
    await opened(again, await link_of(browser))
    assert (await again.post("/api/v1/tokens", json={"name": "more"})).status_code == 403


async def test_the_session_of_a_link_can_be_left(api: Api) -> None:
    browser = api.client(**BY_PROGRAM)
    await opened(browser, await link_of(await token_client(api)))
    assert (await browser.post("/api/v1/logout")).status_code == 204
    assert await whoami(browser) is None


async def test_the_session_of_a_link_ends_with_its_token(api: Api) -> None:
    client = await token_client(api)
    browser = api.client(**BY_PROGRAM)
    await opened(browser, await link_of(client))
    (token,) = (await browser.get("/api/v1/tokens")).json()["items"]
    assert (await client.delete(f"/api/v1/tokens/{token['id']}")).status_code == 204
    assert await whoami(browser) is None


async def test_a_link_does_not_outlive_its_token(api: Api) -> None:
    client = await token_client(api)
    url, other = await link_of(client), await link_of(client)
    assert (await opened(api.client(**BY_PROGRAM), other)).status_code == 200
    (token,) = (await client.get("/api/v1/tokens")).json()["items"]
    assert (await client.delete(f"/api/v1/tokens/{token['id']}")).status_code == 204
    browser = api.client(**BY_PROGRAM)
    assert (await opened(browser, url)).status_code == 401
    assert await whoami(browser) is None


async def test_the_session_of_a_link_does_not_outlive_a_token_that_expires(api: Api) -> None:
    client = await token_client(api, expires_in_days=1)
    api.clock.forward(hours=23)
    browser = api.client(**BY_PROGRAM)
    await opened(browser, await link_of(client))
    api.clock.forward(hours=2)
    assert await whoami(browser) is None


async def test_a_link_to_anothers_or_no_workspace_is_not_made(api: Api) -> None:
    admin = await api.signed_in()
    foreign = (await admin.post("/api/v1/workspaces", json={"name": "theirs"})).json()
    client = await token_client(api)
    for workspace_id, status in ((foreign["id"], 403), (new_id(), 404), ("nonsense", 404)):
        answer = await client.post("/api/v1/login-links", json={"workspace_id": workspace_id})
        assert answer.status_code == status


async def test_nobody_signed_in_is_an_answer(api: Api) -> None:
    answer = await api.client().get("/api/v1/whoami")
    assert (answer.status_code, answer.json()) == (200, {"user": None, "by_token": False})
