"""A page of a workspace that sets cookies for all hosts of its site, in a real browser: nobody is locked out."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext, expect

from codehub.adapters.postgres.pool import Database
from e2e.ide_tabs import until
from e2e.test_hostile_page import sign_in
from testing.codehub.proxy_access import World, world
from testing.codehub.rawhttp import Peer

pytestmark = pytest.mark.full_chromium

SITE = "site.localhost"
PAGE = b"<!doctype html><title>an IDE</title>"
# Cookies of CodeHub's names for every host and path that a page can choose. Longer paths come first in a request.
FORGE = """([site, others]) => {
  const paths = ["/", "/api", "/api/v1", ...others.map((id) => `/w/${id}/`)];
  for (const name of ["session", "codehub_ws", "codehub_nonce", "codehub_link"]) {
    for (const path of paths) document.cookie = `${name}=forged; Domain=${site}; Path=${path}`;
  }
}"""
FLOOD = """([site]) => {
  for (let n = 0; n < 50; n++) document.cookie = `junk${n}=${"x".repeat(4000)}; Domain=${site}; Path=/`;
}"""
SESSION = """async () => {
  const key = localStorage.getItem("codehub.session_key");
  const answer = await fetch("/api/v1/session", {headers: {"X-CodeHub-Session-Key": key}});
  return [answer.status, (await answer.json()).user?.username];
}"""


def address(here: World, workspace_id: str) -> str:
    return f"http://{here.authority(workspace_id)}/w/{workspace_id}/"


@pytest.mark.timeout(600)
async def test_cookies_for_the_whole_site_lock_nobody_out(
    database: Database, browser_context: BrowserContext
) -> None:
    async with world(database, for_browsers=True, host_pattern=f"*.{SITE}", public_host=f"codehub.{SITE}") as here:

        def ide(peer: Peer) -> None:
            while True:
                peer.read_message()
                peer.send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
                )

        here.upstream.script = ide
        await sign_in(here, browser_context)
        hostile, open_before, new = [await here.workspace() for _ in range(3)]
        page = await browser_context.new_page()
        for workspace_id in (open_before, hostile):
            await page.goto(address(here, workspace_id))
            await expect(page).to_have_title("an IDE")
        await page.evaluate(FORGE, [SITE, [open_before, new]])
        # If the browser did not take them, this test would show nothing.
        await _until_taken(browser_context, 20)

        dashboard = await browser_context.new_page()
        await dashboard.goto(f"{here.settings.public_url}/health")
        assert await dashboard.evaluate(SESSION) == [200, "admin"]
        for workspace_id in (open_before, new):  # with its cookie, and by the hand-over
            shown = await page.goto(address(here, workspace_id))
            assert shown is not None
            assert shown.status == 200
            await expect(page).to_have_title("an IDE")

        await page.evaluate(FLOOD, [SITE])
        await _until_taken(browser_context, 20 + 50)
        assert await dashboard.evaluate(SESSION) == [200, "admin"]
        # What docs/security.md says is not prevented: other workspaces on plain http, until the cookies are deleted.
        refused = await page.goto(address(here, new))
        assert refused is not None
        assert refused.status == 431
        assert "delete the cookies of this site" in await refused.text()


async def _until_taken(context: BrowserContext, count: int) -> None:
    """Wait for cookies for the whole site. A page does not wait until the browser has stored those that it sets."""

    async def taken() -> bool:
        return len([c for c in await context.cookies() if c.get("domain") == f".{SITE}"]) == count

    await until(taken, f"{count} cookies are taken")
