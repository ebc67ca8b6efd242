"""A workspace's whole life from the page, with the real control plane and real events behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Page, expect

from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from e2e.pages import card, press, sign_in
from testing.control_plane import control_plane
from testing.dashboard import DashboardServer, Stage


@pytest_asyncio.fixture
async def live_dashboard(database: Database, redis_url: str) -> AsyncIterator[DashboardServer]:
    """As `dashboard`, told of changes by the coordinator's events over Valkey."""
    client = connect(redis_url)
    server = DashboardServer(database, bus=RedisBus(client))
    await server.start()
    yield server
    await server.stop()
    await client.aclose()


async def test_a_workspace_lives_from_creation_to_deletion_and_back(
    database: Database,
    redis_url: str,
    live_dashboard: DashboardServer,
    page: Page,
    stage: Stage,
    page_faults: list[str],
) -> None:
    async with control_plane(database, redis_url) as world:
        await sign_in(page, live_dashboard)
        await press(page, "New workspace")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill("life")
        await dialog.get_by_role("button", name="Create").click()
        mine = card(page, "life")
        await expect(page.get_by_role("link", name="Open life in a new tab")).to_be_visible()
        workspace_id = await stage.named("life")
        assert world.instances.there[workspace_id].running

        await press(page, "Stop life")
        await expect(mine.get_by_text("Asleep", exact=True)).to_be_visible()
        await press(page, "Archive life")
        await expect(mine.get_by_text("Archived", exact=True)).to_be_visible()
        assert (await stage.row(workspace_id))["archive_key"]
        await press(page, "Restore life")
        await expect(page.get_by_role("link", name="Open life in a new tab")).to_be_visible()

        await page.get_by_role("link", name="life", exact=True).click()
        await expect(page.locator(".timeline li").first).to_be_visible()
        await page.goto(f"{live_dashboard.url}/#/admin")
        await expect(page.get_by_text("test-coordinator leads.")).to_be_visible()

        await page.goto(f"{live_dashboard.url}/#/")
        await page.get_by_role("link", name="life", exact=True).click()
        await press(page, "Delete life")
        await dialog.get_by_role("textbox").fill("life")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("This workspace is deleted.")).to_be_visible()
        await page.goto(f"{live_dashboard.url}/#/admin/workspaces")
        await page.get_by_label("Deleted ones that can be brought back").check()
        await press(page, "Undelete life")
        await page.goto(f"{live_dashboard.url}/#/")
        await expect(mine.get_by_text("Archived", exact=True)).to_be_visible()
    # The page may have been asking for the timeline of what was just deleted.
    page_faults[:] = [fault for fault in page_faults if "404" not in fault]
