"""The real IDEs in a real browser, through the proxy: work, an idle tab, sleep and waking, and a hostile page."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

from codehub.adapters.postgres.pool import Database
from codehub.domain.profiles import SHIPPED
from testing.api import put_in_state
from testing.gate import World, world
from testing.ides import Ide, running_code_server, running_jupyterlab
from testing.rawhttp import Peer

PATIENCE_S = 120
# An idle tab is one that is silent for this long, as a workspace with this TTL would see it.
IDLE_S = 22
FLUSHED = {"ACTIVITY_FLUSH_INTERVAL": "1", "TTL_STANDBY_SECONDS": "20"}


async def until(true: Callable[[], Awaitable[bool]], what: str, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not await true():
        assert time.monotonic() < deadline, f"not so after {within_s} s: {what}"
        await asyncio.sleep(0.25)


async def has(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def sign_in(here: World, context: BrowserContext) -> None:
    """As after signing in at the dashboard."""
    secret = here.owner.cookies["session"]
    await context.add_cookies([{"name": "session", "value": secret, "url": here.settings.public_url}])


async def last_touch(here: World, workspace_id: str) -> float:
    return (await here.activity.pending()).get(workspace_id, 0.0)


async def goes_idle(here: World, workspace_id: str) -> None:
    """The open tab falls silent: nothing that it does by itself counts as work."""

    async def silent() -> bool:
        return time.time() - await last_touch(here, workspace_id) > IDLE_S

    await until(silent, "the idle tab is silent", within_s=180)


async def counts_as_work(here: World, workspace_id: str, since: float) -> None:
    async def touched() -> bool:
        return await last_touch(here, workspace_id) >= since

    await until(touched, "what was typed counts as work")


async def sleeps_and_wakes(here: World, workspace_id: str, ide: Ide, page: Page, arrived: str) -> None:
    """Asleep as the coordinator would leave it; opening it wakes it, and the page arrives by itself."""
    address = page.url
    await page.goto("about:blank")
    del here.placed.upstreams[workspace_id]
    await put_in_state(here.database, workspace_id, phase="STANDBY", desired_state="STANDBY")
    # What was decided while it ran is remembered for two seconds.
    await asyncio.sleep(2.5)
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Your workspace is waking up")).to_be_visible()
    assert (await here.row(workspace_id))["desired_state"] == "RUNNING"
    here.placed.upstreams[workspace_id] = ide.upstream
    await put_in_state(here.database, workspace_id, phase="RUNNING")
    await page.wait_for_selector(arrived)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.needs("npm")
async def test_code_server_works_falls_silent_sleeps_and_wakes(
    database: Database, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()  # what an IDE logs in its console is its own business
    workbench = ".monaco-workbench .part.statusbar .statusbar-item"
    async with (
        world(database, for_browsers=True, profiles=dict(SHIPPED), **FLUSHED) as here,
        running_code_server() as ide,
    ):
        workspace_id = await here.workspace(image_ref="code-server")
        here.placed.upstreams[workspace_id] = ide.upstream
        await sign_in(here, browser_context)
        await page.goto(f"http://localhost:{here.port}/w/{workspace_id}/?folder={ide.home}")
        await page.wait_for_selector(".explorer-folders-view")
        # The file tree, an edit, and a save.
        await page.get_by_role("treeitem", name="notes.txt").dblclick()
        await page.wait_for_selector(".editor-instance .view-lines")
        await page.locator(".editor-instance .view-lines").click()
        await page.keyboard.press("Control+Home")
        await page.keyboard.type("written in the browser ")
        await page.keyboard.press("Control+S")
        await until(lambda: has(ide.home / "notes.txt", "written in the browser"), "the edit is saved")
        # A terminal.
        await page.keyboard.press("Control+Backquote")
        await page.wait_for_selector(".terminal-wrapper .xterm-screen")
        made = ide.home / "made.txt"

        async def echoed() -> bool:
            await page.locator(".terminal-wrapper .xterm-screen").click()
            await page.keyboard.type(f"echo typed > {made}\n")
            await asyncio.sleep(1)
            return await has(made, "typed")

        await until(echoed, "the terminal runs what is typed")
        # Search.
        await page.keyboard.press("Control+Shift+F")
        await page.locator(".search-view .search-widget textarea").first.fill("written in")
        await page.keyboard.press("Enter")
        await expect(page.locator(".search-view .messages")).to_contain_text(re.compile(r"\d+ results? in \d+ file"))
        # A restart of the proxy: the open tab connects again by itself and goes on.
        await here.stop_proxy()
        await here.start_proxy()
        made.unlink()
        await until(echoed, "the terminal goes on after a restart of the proxy")
        await page.reload()
        await page.wait_for_selector(workbench)

        await goes_idle(here, workspace_id)
        since = time.time()
        await page.keyboard.press("Control+Shift+F")
        await page.locator(".search-view .search-widget textarea").first.fill("first")
        await page.keyboard.press("Enter")
        await counts_as_work(here, workspace_id, since)
        await sleeps_and_wakes(here, workspace_id, ide, page, workbench)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_jupyterlab_works_falls_silent_sleeps_and_wakes(
    database: Database, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()  # what an IDE logs in its console is its own business
    async with world(database, for_browsers=True, profiles=dict(SHIPPED), **FLUSHED) as here:
        workspace_id = await here.workspace(image_ref="jupyterlab")
        async with running_jupyterlab(workspace_id) as ide:
            here.placed.upstreams[workspace_id] = ide.upstream
            await sign_in(here, browser_context)
            await page.goto(f"http://localhost:{here.port}/w/{workspace_id}/lab")
            await page.wait_for_selector(".jp-Launcher")
            # A kernel.
            await page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
            cell = page.locator(".jp-Notebook .jp-Cell .cm-content").first
            await cell.click()
            await page.keyboard.type("print(6 * 7)")

            async def computed() -> bool:
                """A kernel that is still coming up takes what is run then; run it again until it answers."""
                await cell.click()
                await page.keyboard.press("Control+Enter")
                await asyncio.sleep(2)
                found = page.locator(".jp-OutputArea-output")
                return bool(await found.count()) and "42" in await found.first.inner_text()

            await until(computed, "the kernel answers")
            await page.keyboard.press("Control+S")
            # A terminal.
            await page.goto(f"http://localhost:{here.port}/w/{workspace_id}/lab/workspaces/fresh?reset")
            await page.locator('.jp-LauncherCard:has-text("Terminal")').first.click()
            await page.wait_for_selector(".jp-Terminal .xterm-screen")
            made = ide.home / "made.txt"

            async def echoed() -> bool:
                await page.locator(".xterm-screen").first.click()
                await page.keyboard.type(f"echo typed > {made}\n")
                await asyncio.sleep(1)
                return await has(made, "typed")

            await until(echoed, "the terminal runs what is typed")
            await page.goto(f"http://localhost:{here.port}/w/{workspace_id}/lab")
            await page.wait_for_selector("#jp-main-dock-panel")

            await goes_idle(here, workspace_id)
            since = time.time()
            await page.evaluate(
                f"fetch('/w/{workspace_id}/api/contents/x.txt', {{method: 'PUT', body: "
                'JSON.stringify({type: "file", format: "text", content: "x"}), '
                "headers: {'X-XSRFToken': (document.cookie.match(/_xsrf=([^;]+)/) || [])[1]}})"
            )
            await counts_as_work(here, workspace_id, since)
            await sleeps_and_wakes(here, workspace_id, ide, page, "#jp-main-dock-panel")


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
