"""The dashboard in Chromium: the first paint, and how a page with 1,000 workspaces feels while it loads, is searched and
changes. A task longer than 50 ms is one that a person can feel; the longest of each phase is what is measured.
"""

from __future__ import annotations

import asyncio
import shutil

from playwright.async_api import Page, expect

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.cli import logs
from e2e.pages import sign_in
from testing.browser import chromium
from testing.codehub.dashboard import RUNNING, DashboardServer, Stage
from testing.codehub.services import service_dir

WORKSPACES = 1_000
_UPDATES = 20
_WATCH = """
window.longest = 0;
new PerformanceObserver(list => list.getEntries().forEach(one => {
    window.longest = Math.max(window.longest, one.duration);
})).observe({type: "longtask", buffered: true});
"""


def measure() -> list[dict[str, object]]:
    logs.configure("warning", "text")
    return asyncio.run(_measure())


async def _measure() -> list[dict[str, object]]:
    place = service_dir()
    postgres = EmbeddedPostgres(place)
    postgres.start()
    try:
        await migrate(postgres.url("postgres"))
        async with Database(postgres.url("postgres")) as database:
            server = DashboardServer(database)
            await server.start()
            try:
                async with chromium() as browser:
                    context = await browser.new_context(viewport={"width": 1280, "height": 800})
                    return await _rows(await context.new_page(), server, Stage(database))
            finally:
                await server.stop()
    finally:
        postgres.stop()
        shutil.rmtree(place, ignore_errors=True)


async def _rows(page: Page, server: DashboardServer, stage: Stage) -> list[dict[str, object]]:
    ids = await stage.add_many([f"workspace {number:04}" for number in range(WORKSPACES)])
    await sign_in(page, server)
    await page.add_init_script(_WATCH)
    await page.reload()
    cards = page.locator(".cards > .card:not([hidden])")
    await expect(cards).to_have_count(WORKSPACES)
    painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    rows = [
        _row("first paint, signed in, files in the cache", await page.evaluate(painted)),
        _row(f"loading {WORKSPACES} workspaces: longest task", await _longest(page)),
    ]
    for letter in "workspace 099":
        await page.locator("input[type=search]").press(letter if letter != " " else "Space")
    await expect(cards).to_have_count(10)
    await page.locator("input[type=search]").fill("")
    await expect(cards).to_have_count(WORKSPACES)
    rows.append(_row("searching as one types: longest task", await _longest(page)))
    for workspace_id in ids[:: WORKSPACES // _UPDATES]:
        await stage.change(workspace_id, **RUNNING)
        await expect(page.locator(f"[data-id='{workspace_id}']")).to_contain_text("Running")
    rows.append(_row(f"{_UPDATES} changes one after the other: longest task", await _longest(page)))
    await page.evaluate(
        """async () => {
            const step = () => new Promise(requestAnimationFrame);
            for (let at = 0; at < document.documentElement.scrollHeight; at += 400) { scrollTo(0, at); await step(); }
        }"""
    )
    rows.append(_row("scrolling through all of them: longest task", await _longest(page)))
    return rows


async def _longest(page: Page) -> float:
    """Since the last time it was asked; 0 when no task took longer than 50 ms."""
    await page.evaluate("() => new Promise(done => setTimeout(done, 300))")
    return float(await page.evaluate("() => { const was = window.longest; window.longest = 0; return was; }"))


def _row(what: str, value: float) -> dict[str, object]:
    return {"what": what, "value": float(value), "unit": "ms"}
