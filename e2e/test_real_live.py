"""Pages that stay open while the world changes: other windows, a restart of everything, a session that ends, a keyboard."""

from __future__ import annotations

import asyncio

import psycopg
from playwright.async_api import Browser, BrowserContext, Page, expect

from e2e.pages import card, create, live, open_workspace, press, run_inside, sign_in, submit_credentials, until_is
from testing.browser import close_context, with_long_timeouts
from testing.codehub.dashboard import ADMIN, PASSWORD
from testing.codehub.full_stack import Stack

# When the IDE's process began, in ticks since the machine did: a process of the same number has another.
BORN = "cut -d' ' -f22 /proc/$PPID/stat"


async def test_two_windows_and_another_browser_see_each_others_changes(
    real: Stack, page: Page, browser_context: BrowserContext, browser: Browser
) -> None:
    await sign_in(page, real)
    other = await browser_context.new_page()
    await other.goto(f"{real.url}/")
    await live(other)
    phone_context = with_long_timeouts(
        await browser.new_context(viewport={"width": 390, "height": 780}, color_scheme="dark")
    )
    phone = await phone_context.new_page()
    await sign_in(phone, real)
    await create(page, "shared")
    await until_is(card(other, "shared"), "Running")
    await press(phone, "Stop shared")
    for window in (page, other, phone):
        await until_is(card(window, "shared"), "Asleep")
    await card(other, "shared").get_by_role("link", name="shared", exact=True).click()
    await press(other, "Delete shared")
    await other.get_by_role("dialog").get_by_role("textbox").fill("shared")
    await other.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(card(page, "shared")).to_be_hidden()
    await expect(card(phone, "shared")).to_be_hidden()
    await close_context(phone_context)


async def test_a_restart_of_everything_is_said_survived_and_workspaces_go_on(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, real)
    await create(page, "steady")
    inside = await open_workspace(page, "steady")
    before = await run_inside(inside, BORN)
    await until_is(card(page, "steady"), "Running")
    await asyncio.to_thread(real.end)
    await expect(page.get_by_text("CodeHub does not answer.")).to_be_visible()
    await press(page, "Stop steady")
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    await asyncio.to_thread(real.up)
    await live(page)
    await expect(page.get_by_text("CodeHub does not answer. This page may be out of date")).to_be_hidden()
    # A browser logs every connection that was refused; nothing else may be there.
    assert all("Failed to load resource" in fault or "ERR_" in fault for fault in page_faults), page_faults
    page_faults.clear()
    await until_is(card(page, "steady"), "Running")
    assert await run_inside(inside, BORN) == before, "the very same process"
    await press(page, "Stop steady")
    await until_is(card(page, "steady"), "Asleep")
    await inside.close()


async def test_an_ended_session_asks_to_sign_in_and_goes_on_where_it_was(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, real)
    await create(page, "thesis")
    await page.get_by_role("link", name="thesis", exact=True).click()
    await expect(page.get_by_role("heading", name="thesis")).to_be_visible()
    where = page.url
    with psycopg.connect(await asyncio.to_thread(real.value, "CODEHUB_DATABASE_URL")) as connection:
        connection.execute("UPDATE sessions SET expires_at = now() - interval '1 second'")
    await expect(page.get_by_text("Your session has ended")).to_be_visible()
    await submit_credentials(page)
    await expect(page.get_by_role("heading", name="thesis")).to_be_visible()
    assert page.url == where
    await live(page)
    # Whether a request of the page was refused before the stream delivered it, a browser logs as an error.
    page_faults[:] = [fault for fault in page_faults if "401" not in fault]


async def test_a_life_by_the_keyboard_alone(real: Stack, page: Page, page_faults: list[str]) -> None:
    await page.goto(f"{real.url}/")
    await expect(page.get_by_label("User name")).to_be_focused()
    await page.keyboard.type(ADMIN)
    await page.keyboard.press("Tab")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await live(page)

    await _tab_to(page, "New workspace")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Name")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("button", name="New workspace")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("Name")).to_be_focused()
    await page.keyboard.type("by keyboard")
    await page.keyboard.press("Enter")
    mine = card(page, "by keyboard")
    await until_is(mine, "Running")

    await _tab_to(page, "Open by keyboard in a new tab")
    async with page.context.expect_page() as opened:
        await page.keyboard.press("Enter")
    await (await opened.value).close()
    await _tab_to(page, "Stop by keyboard")
    await page.keyboard.press("Enter")
    await until_is(mine, "Asleep")
    # The button that had the focus is gone with the state; the focus is still in this card.
    assert await mine.evaluate("card => card.contains(document.activeElement)")
    await _tab_to(page, "by keyboard", backwards=True)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="by keyboard")).to_be_visible()
    await _tab_to(page, "Delete by keyboard")
    await page.keyboard.press("Enter")
    await page.keyboard.type("by keyboard")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("This workspace was deleted.")).to_be_visible()
    # The page may have been asking for the timeline of what was just deleted.
    page_faults[:] = [fault for fault in page_faults if "404" not in fault]


async def _tab_to(page: Page, name: str, *, backwards: bool = False) -> None:
    label = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    for _ in range(100):
        if await page.evaluate(label) == name:
            return
        await page.keyboard.press("Shift+Tab" if backwards else "Tab")
    raise AssertionError(f"Tab never came to {name}")
