"""What a person does on the dashboard's pages, in a person's words."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from testing.browser import PATIENCE_MS
from testing.dashboard import ADMIN, PASSWORD, DashboardServer

# Playwright's own five seconds are for quiet machines.
expect.set_options(timeout=PATIENCE_MS)


async def sign_in(page: Page, server: DashboardServer, username: str = ADMIN, password: str = PASSWORD) -> None:
    await page.goto(f"{server.url}/")
    await submit_credentials(page, username, password)
    await expect(page.get_by_role("heading", name="Workspaces", exact=True)).to_be_visible()
    await live(page)


async def submit_credentials(page: Page, username: str = ADMIN, password: str = PASSWORD) -> None:
    await page.get_by_label("User name").fill(username)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


async def live(page: Page) -> None:
    """The stream is open and its first snapshot is shown."""
    await expect(page.locator("html[data-live=on]")).to_be_attached()


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem").filter(has=page.get_by_role("link", name=name, exact=True))


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()
