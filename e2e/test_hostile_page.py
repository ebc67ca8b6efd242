"""A page served by a workspace, in a real browser: it reaches neither the API nor the session nor another workspace."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext

from codehub.adapters.postgres.pool import Database
from testing.codehub.proxy_access import World, world
from testing.codehub.rawhttp import Peer


async def sign_in(here: World, context: BrowserContext) -> None:
    """As after signing in at the dashboard."""
    secret = here.owner.cookies["session"]
    await context.add_cookies([{"name": "session", "value": secret, "url": here.settings.public_url}])


HOSTILE = """<!doctype html><title>hostile</title><script>
async function attempt(work) { try { return await work(); } catch (error) { return "failed"; } }
(async () => {
  const api = "%(api)s", other = "%(other)s";
  const seen = {};
  seen.api = await attempt(async () => (await fetch(api + "/api/v1/session", {credentials: "include"})).status);
  seen.change = await attempt(async () => (await fetch(api + "/api/v1/workspaces", {method: "POST", credentials: "include",
    headers: {"Content-Type": "application/json"}, body: '{"name": "evil"}'})).status);
  seen.cookies = document.cookie;
  seen.other = await attempt(async () => (await fetch(other, {credentials: "include"})).status);
  seen.frame = await attempt(() => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.onload = () => { try { done(frame.contentDocument ? "read" : "failed"); } catch { done("failed"); } };
    frame.src = other; document.body.append(frame);
  }));
  seen.socket = await attempt(() => new Promise((done) => {
    const socket = new WebSocket(other.replace("http", "ws") + "socket");
    socket.onopen = () => done("open"); socket.onerror = () => done("failed");
  }));
  document.title = JSON.stringify(seen);
})();
</script><body></body>"""


@pytest.mark.timeout(300)
async def test_a_hostile_page_reaches_neither_the_api_nor_the_session_nor_another_workspace(
    database: Database, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()  # what an IDE logs in its console is its own business
    async with world(database, for_browsers=True, host_pattern="*.localhost") as here:
        one, other = await here.workspace(), await here.workspace()
        address = f"http://{here.authority(other)}/w/{other}/"
        body = (HOSTILE % {"api": here.settings.public_url, "other": address}).encode()

        def hostile(peer: Peer) -> None:
            while True:
                peer.read_message()
                peer.send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )

        here.upstream.script = hostile
        await sign_in(here, browser_context)
        # The victim has the other workspace open too.
        await page.goto(address)
        await page.goto(f"http://{here.authority(one)}/w/{one}/")
        await page.wait_for_function("document.title.startsWith('{')")
        seen = await page.evaluate("JSON.parse(document.title)")
        assert seen["api"] == seen["change"] == seen["other"] == seen["frame"] == seen["socket"] == "failed", seen
        assert "session" not in seen["cookies"]
        assert "codehub" not in seen["cookies"]
        async with database.transaction() as tx:
            row = await (await tx.execute("SELECT count(*) AS n FROM workspaces WHERE name = 'evil'")).fetchone()
        assert row is not None
        assert row["n"] == 0
