"""`make screens`: pictures of every screen into docs/screens, taken from the real dashboard."""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, expect

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from e2e.pages import card, press, sign_in
from testing.browser import chromium, patient
from testing.dashboard import ARCHIVED, ASLEEP, RUNNING, DashboardServer, Stage
from testing.services import service_dir

SCREENS: Final = Path(__file__).parent.parent / "docs/screens"


async def main() -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    place = service_dir()
    postgres = EmbeddedPostgres(place)
    postgres.start()
    try:
        url = postgres.url("postgres")
        await migrate(url)
        async with Database(url) as database, chromium() as browser:
            server = DashboardServer(database)
            await server.start()
            try:
                await _take_all(browser, server, Stage(database))
            finally:
                await server.stop()
    finally:
        postgres.stop()
        shutil.rmtree(place, ignore_errors=True)


async def _take_all(browser: Browser, server: DashboardServer, stage: Stage) -> None:
    ids = await _furnish(server, stage)
    page = await _window(browser, "light", 1100, 720)
    await page.goto(f"{server.url}/")
    await expect(page.get_by_label("User name")).to_be_visible()
    await _take(page, "sign-in")
    await sign_in(page, server)
    await expect(card(page, "thesis")).to_be_visible()
    await _take(page, "workspaces")
    await press(page, "New workspace")
    await page.get_by_role("dialog").get_by_label("Name").fill("compiler")
    await _take(page, "create")
    await page.keyboard.press("Escape")
    for name, workspace in (("workspace", "web-shop"), ("progress", "thesis"), ("error", "old-blog")):
        await page.goto(f"{server.url}/#/workspaces/{ids[workspace]}")
        await expect(page.get_by_role("heading", name=workspace)).to_be_visible()
        await expect(page.locator(".timeline li").first).to_be_visible()
        await _take(page, name)
    await press(page, "Delete old-blog")
    await _take(page, "delete")
    await page.keyboard.press("Escape")
    for name, where, seen in (
        ("account", "account", "this one"),
        ("admin-system", "admin", "Nobody leads"),
        ("admin-workspaces", "admin/workspaces", "web-shop"),
        ("admin-users", "admin/users", "you"),
    ):
        await page.goto(f"{server.url}/#/{where}")
        await expect(page.get_by_text(seen).first).to_be_visible()
        await _take(page, name)
    phone = await _window(browser, "dark", 390, 780)
    await sign_in(phone, server)
    await expect(card(phone, "thesis")).to_be_visible()
    await _take(phone, "phone-dark")


async def _furnish(server: DashboardServer, stage: Stage) -> dict[str, str]:
    now = server.clock()
    progress = {"step": "unpacking", "done": 410_000_000, "total": 660_000_000, "unit": "bytes"}
    rooms: dict[str, dict[str, object]] = {
        "notes": {**ARCHIVED, "description": "reading list and drafts", "last_access_at": now - timedelta(days=12)},
        "old-blog": {
            "phase": "ERROR",
            "desired_state": "RUNNING",
            "error_reason": "ImagePullFailed",
            "error_count": 1,
        },
        "data-pipeline": {**ASLEEP, "description": "nightly import", "phase_changed_at": now - timedelta(minutes=4)},
        "thesis": {**ARCHIVED, "desired_state": "RUNNING", "operation": "RESTORING", "progress": progress},
        "web-shop": {
            **RUNNING,
            "description": "checkout and payments",
            "memo": "left off at the refund tests",
            "last_access_at": now,
            "phase_changed_at": now,
        },
    }
    ids = {}
    for name, columns in rooms.items():
        ids[name] = await stage.add(name, **columns)
        await stage.tell(ids[name], "created", "created and started from code-server", "admin")
    await stage.tell(ids["web-shop"], "phase", "running: the IDE answers")
    await stage.tell(ids["thesis"], "operation", "restoring from its archive, because it was opened", "admin")
    await stage.tell(ids["old-blog"], "error", "the image could not be pulled: no such tag")
    server.instances.say(
        ids["web-shop"], "[10:02:11] info  code-server listens on a socket\n[10:02:14] info  1 client\n"
    )
    server.instances.usage_of[ids["web-shop"]] = {"cpu_percent": 7, "memory_bytes": 412e6, "memory_limit_bytes": 4e9}
    return ids


async def _window(browser: Browser, scheme: str, width: int, height: int) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    return await patient(context).new_page()


async def _take(page: Page, name: str) -> None:
    await page.screenshot(path=SCREENS / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    asyncio.run(main())
