"""A browser that does not resolve `*.localhost` shows what to do, and no other browser does."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from e2e.pages import card, create, sign_in, until_is
from testing.codehub.full_stack import Stack

pytestmark = pytest.mark.full_chromium

NOTICE = "#own-hosts"


async def not_found(route: Route) -> None:
    await route.abort("namenotresolved")


async def open_one(page: Page, name: str) -> None:
    """Press Open; what comes of it in the other tab does not matter here."""
    await create(page, name)
    await until_is(card(page, name), "Running")
    await page.get_by_role("link", name=f"Open {name} in a new tab").click()


async def test_a_browser_without_names_below_localhost_is_told_what_to_do(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await page.context.route("http://*.localhost:*/**", not_found)
    await sign_in(page, real)
    await expect(page.locator(NOTICE)).to_be_hidden()
    await open_one(page, "unresolved")
    await expect(page.locator(NOTICE)).to_contain_text("CODEHUB_WORKSPACE_HOST=none codehub up")
    await expect(page.locator(NOTICE)).to_contain_text("resolves.localhost")
    assert [fault for fault in page_faults if "ERR_NAME_NOT_RESOLVED" not in fault] == []
    page_faults.clear()


async def test_other_browsers_see_nothing_of_it(real: Stack, page: Page) -> None:
    await sign_in(page, real)
    await open_one(page, "resolved")
    await expect(page.locator("html[data-finds-names=yes]")).to_be_attached()
    await expect(page.locator(NOTICE)).to_be_hidden()


async def test_a_proxy_that_is_down_is_not_blamed_on_the_browser(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await page.context.route("http://*.localhost:*/**", not_found)
    await page.context.route("http://localhost:*/health", not_found)
    await sign_in(page, real)
    await open_one(page, "down")
    await expect(page.locator("html[data-finds-names=unknown]")).to_be_attached()
    await expect(page.locator(NOTICE)).to_be_hidden()
    assert [fault for fault in page_faults if "ERR_NAME_NOT_RESOLVED" not in fault] == []
    page_faults.clear()
