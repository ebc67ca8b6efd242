"""Signing in, out, and being signed out, in a real browser."""

from __future__ import annotations

from playwright.async_api import Page, expect

from testing.dashboard import ADMIN, PASSWORD, DashboardServer, Stage


async def sign_in(page: Page, server: DashboardServer, username: str = ADMIN, password: str = PASSWORD) -> None:
    await page.goto(f"{server.url}/")
    await page.get_by_label("User name").fill(username)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Workspaces", exact=True)).to_be_visible()


async def test_first(page: Page, dashboard: DashboardServer, stage: Stage) -> None:
    await stage.add("alpha")
    await sign_in(page, dashboard)
    await expect(page.get_by_role("link", name="alpha")).to_be_visible()
