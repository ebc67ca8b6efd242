"""Signing in, out, and being signed out, in a real browser."""

from __future__ import annotations

from datetime import timedelta

import httpx
from playwright.async_api import Page, expect

from e2e.pages import live, sign_in, submit_credentials
from testing.dashboard import ADMIN, PASSWORD, DashboardServer, Stage


async def test_a_wrong_password_is_said_and_the_right_one_lets_in_and_out_again(
    dashboard: DashboardServer, page: Page, page_faults: list[str]
) -> None:
    await page.goto(f"{dashboard.url}/?next=//evil.example/")
    await submit_credentials(page, password="wrong")
    await expect(page.get_by_role("alert")).to_contain_text("wrong user name or password")
    page_faults.clear()
    await submit_credentials(page)
    await expect(page.get_by_role("heading", name="No workspaces yet")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.url.startswith(dashboard.url), "another host was asked for, and is not gone to"


async def test_a_page_that_asked_for_a_sign_in_is_returned_to(dashboard: DashboardServer, page: Page) -> None:
    await page.goto(f"{dashboard.url}/?next=/health")
    await submit_credentials(page)
    await page.wait_for_url(f"{dashboard.url}/health")


async def test_an_expired_session_asks_to_sign_in_and_goes_on_where_it_was(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    workspace_id = await stage.add("thesis")
    await sign_in(page, dashboard)
    await page.get_by_role("link", name="thesis").click()
    await expect(page.get_by_role("heading", name="thesis")).to_be_visible()
    dashboard.offset += timedelta(hours=25)
    await expect(page.get_by_text("Your session has ended")).to_be_visible()
    # Whether a request of the page was refused before the stream told it, a browser logs as an error.
    page_faults.clear()
    await submit_credentials(page)
    await expect(page.get_by_role("heading", name="thesis")).to_be_visible()
    assert page.url.endswith(f"#/workspaces/{workspace_id}")
    await live(page)


async def test_a_sign_in_link_signs_the_browser_in_that_it_is_opened_in(
    dashboard: DashboardServer, page: Page
) -> None:
    async with httpx.AsyncClient(base_url=f"{dashboard.url}/api/v1/") as client:
        await client.post("login", json={"username": ADMIN, "password": PASSWORD})
        token = (await client.post("tokens", json={"name": "cli"})).json()["token"]
        client.cookies.clear()
        link = await client.post("login-links", json={}, headers={"authorization": f"Bearer {token}"})
    await page.goto(link.json()["url"])
    await expect(page.get_by_role("heading", name="Workspaces", exact=True)).to_be_visible()
    assert "secret" not in page.url
