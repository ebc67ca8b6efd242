"""Signing in, out, and being signed out, in a real browser."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Page, expect

from e2e.pages import submit_credentials
from testing.codehub.dashboard import ADMIN, PASSWORD, DashboardServer

pytestmark = pytest.mark.full_chromium


async def test_a_wrong_password_is_said_and_the_right_one_lets_in_and_out_again(
    dashboard: DashboardServer, page: Page, page_faults: list[str]
) -> None:
    await page.goto(dashboard.url)
    await submit_credentials(page, password="wrong")
    await expect(page.get_by_role("alert")).to_contain_text("wrong user name or password")
    page_faults.clear()
    await submit_credentials(page)
    await expect(page.get_by_role("heading", name="No workspaces yet")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    "next", ["//evil.localhost/", "/%09/evil.localhost/", "/%0A/evil.localhost/", "/%5Cevil.localhost/"]
)
async def test_signing_in_leads_to_no_other_site(dashboard: DashboardServer, page: Page, next: str) -> None:
    left: list[str] = []
    page.on("request", lambda request: left.append(request.url))
    await page.goto(f"{dashboard.url}/?next={next}")
    await submit_credentials(page)
    await expect(page.get_by_role("heading", name="No workspaces yet")).to_be_visible()
    assert not [url for url in left if not url.startswith(dashboard.url)]


async def test_a_page_that_asked_for_a_sign_in_is_returned_to(dashboard: DashboardServer, page: Page) -> None:
    await page.goto(f"{dashboard.url}/?next=/health")
    await submit_credentials(page)
    await page.wait_for_url(f"{dashboard.url}/health")


async def test_a_sign_in_link_signs_the_browser_in_that_it_is_opened_in(
    dashboard: DashboardServer, page: Page
) -> None:
    async with httpx.AsyncClient(base_url=f"{dashboard.url}/api/v1/", timeout=60) as client:
        key = (await client.post("login", json={"username": ADMIN, "password": PASSWORD})).json()["session_key"]
        with_key = {"X-CodeHub-Session-Key": key}
        token = (await client.post("tokens", json={"name": "cli"}, headers=with_key)).json()["token"]
        client.cookies.clear()
        link = await client.post("login-links", json={}, headers={"authorization": f"Bearer {token}"})
    await page.goto(link.json()["url"])
    await expect(page.get_by_role("heading", name="Workspaces", exact=True)).to_be_visible()
    assert "secret" not in page.url
