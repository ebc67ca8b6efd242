"""The script in an IDE's pages, in a real browser with a page that stands for an IDE; test_ides has the real ones."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from codehub.adapters.postgres.pool import Database
from codehub.domain.profiles import AppProfile
from e2e.test_hostile_page import sign_in
from testing.codehub.api import put_in_state
from testing.codehub.proxy_access import World, world
from testing.codehub.rawhttp import Peer

pytestmark = pytest.mark.full_chromium

ASLEEP = {"phase": "STANDBY", "desired_state": "STANDBY", "operation": "NONE"}
AWAKE = {"phase": "RUNNING", "desired_state": "RUNNING", "operation": "NONE"}
# Connects, as an IDE does; a text field takes what is typed; a database as VS Code's.
PAGE = b"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>files</title></head><body>
<textarea aria-label="Editor"></textarea><script>
window.before = document.compatMode;
window.databases = new Promise((done) => {
  const request = indexedDB.open("recent", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("folders");
  request.onsuccess = () => {
    const store = request.result.transaction("folders", "readwrite").objectStore("folders");
    store.put(1, location.pathname);
    store.getAllKeys().onsuccess = (event) => done(event.target.result);
  };
});
window.socket = new WebSocket(location.href.replace("http", "ws") + "socket");
window.socket.onopen = () => { document.title = "notes.txt - IDE"; };
</script></body></html>"""


def ide(peer: Peer) -> None:
    """Serves the page, and keeps its WebSocket open until the connection ends."""
    while True:
        request = peer.read_message()
        headers = {name.lower(): value for name, value in request.headers}
        if "sec-websocket-key" in headers:
            salted = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = b64encode(hashlib.sha1(salted.encode(), usedforsecurity=False).digest()).decode()
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
            )
            peer.sock.settimeout(None)
            peer.sock.recv(4096)  # the page closes it: without an answer, the browser would wait for a minute
            return
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)


@pytest_asyncio.fixture
async def here(
    request: pytest.FixtureRequest, database: Database, browser_context: BrowserContext
) -> AsyncIterator[World]:
    reload = getattr(request, "param", True)
    profile = AppProfile("code-server", command=("ide",), pages=("/",), reload_after_wake=reload)
    async with world(database, for_browsers=True, profiles={"code-server": profile}) as made:
        made.upstream.script = ide
        await sign_in(made, browser_context)
        yield made


async def opened(here: World, context: BrowserContext, name: str) -> tuple[str, Page]:
    workspace_id = await here.workspace(name=name)
    page = await context.new_page()
    await page.goto(f"http://{here.authority(workspace_id)}/w/{workspace_id}/")
    await expect(page).to_have_title(f"{name} · notes.txt - IDE")
    return workspace_id, page


async def end_socket(page: Page) -> None:
    """As when the IDE's process ends."""
    await page.evaluate("window.socket.close()")


async def test_the_title_begins_with_the_name_and_databases_are_the_workspaces_own(
    here: World, browser_context: BrowserContext
) -> None:
    first, one = await opened(here, browser_context, "thesis")
    second, other = await opened(here, browser_context, "notes")
    assert await one.evaluate("window.before") == "CSS1Compat", "the insertion leaves the page in standards mode"
    assert await one.evaluate("window.databases") == [f"/w/{first}/"]
    assert await other.evaluate("window.databases") == [f"/w/{second}/"]
    await one.evaluate("document.title = 'another.txt - IDE'")
    await expect(one).to_have_title("thesis · another.txt - IDE")
    await one.evaluate("document.title = ''")  # as VS Code's, while it loads
    await expect(one).to_have_title("thesis ·")


@pytest.mark.parametrize("here", [True, False], ids=["reload", "stay"], indirect=True)
async def test_an_open_tab_says_that_it_sleeps_wakes_when_asked_and_keeps_what_was_typed(
    here: World, browser_context: BrowserContext, request: pytest.FixtureRequest
) -> None:
    reloads = bool(request.node.callspec.params["here"])
    workspace_id, page = await opened(here, browser_context, "thesis")
    await page.get_by_label("Editor").fill("unsaved")
    await put_in_state(here.database, workspace_id, **ASLEEP)
    await end_socket(page)
    asleep = page.get_by_role("dialog", name="thesis is asleep")
    await expect(asleep).to_be_visible()
    notes = asleep.get_by_role("textbox")
    await expect(notes).to_be_focused()
    await page.keyboard.type("typed into the void")
    await expect(notes).to_have_value("typed into the void")
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY", "neither looking nor typing wakes it"

    await asleep.get_by_role("button", name="Wake up").click()
    waking = page.get_by_role("dialog", name="thesis is waking up")
    await expect(waking).to_be_visible()
    await expect(waking.get_by_role("button", name="Wake up")).to_be_disabled()
    assert (await here.row(workspace_id))["desired_state"] == "RUNNING"
    await put_in_state(here.database, workspace_id, **AWAKE)
    kept = page.get_by_role("region", name="Typed while asleep")
    await expect(kept.get_by_role("textbox")).to_have_value("typed into the void")
    await expect(waking).to_be_hidden()
    await expect(page.get_by_label("Editor")).to_have_value("" if reloads else "unsaved")
    await kept.get_by_role("button", name="Dismiss").click()
    await expect(kept).to_be_hidden()
    await page.reload()
    await expect(page).to_have_title(re.compile("^thesis · "))
    await expect(kept).to_be_hidden()


async def test_a_connection_that_ends_while_the_workspace_runs_changes_nothing(
    here: World, browser_context: BrowserContext
) -> None:
    _, page = await opened(here, browser_context, "thesis")
    async with page.expect_response("**/_codehub/status") as response:
        await end_socket(page)
    assert (await (await response.value).json())["go"] is True
    await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_over_the_limit_the_tab_says_what_to_do(here: World, browser_context: BrowserContext) -> None:
    workspace_id, page = await opened(here, browser_context, "thesis")
    await put_in_state(here.database, workspace_id, **ASLEEP)
    for _ in range(2):
        await here.workspace()
    await end_socket(page)
    await page.get_by_role("dialog", name="thesis is asleep").get_by_role("button", name="Wake up").click()
    full = page.get_by_role("dialog", name="Too many workspaces are running")
    await expect(full).to_be_visible()
    await expect(full.get_by_role("link", name="My workspaces")).to_have_attribute(
        "href", f"{here.settings.public_url}/"
    )
    await expect(full.get_by_role("button", name="Wake up")).to_be_enabled()
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"
