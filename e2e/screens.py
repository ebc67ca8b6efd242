"""`make screens`: pictures of every screen into docs/screens, of a whole CodeHub with the real code-server in it."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Locator, Page, expect

from e2e.pages import card, create, live, open_workspace, press, sign_in
from testing.browser import chromium, with_long_timeouts
from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import Stack, fresh_stack

SCREENS: Final = Path(__file__).parent.parent / "docs/screens"
# So much that bringing it back can be watched.
_THESIS_BYTES: Final = 3_000_000_000


async def main() -> None:
    # The IDE is installed on the way.
    expect.set_options(timeout=600_000)
    SCREENS.mkdir(parents=True, exist_ok=True)
    with fresh_stack() as stack:
        stack.environment |= {"CODEHUB_ADMIN_PASSWORD": PASSWORD, "LIMITS_MAX_RUNNING_PER_USER": "9"}
        await asyncio.to_thread(stack.up)
        async with chromium() as browser:
            await _take_all(browser, stack)


async def _take_all(browser: Browser, stack: Stack) -> None:
    page = await _window(browser, "light", 1100, 720)
    await page.goto(f"{stack.url}/")
    await expect(page.get_by_label("User name")).to_be_visible()
    await _take(page, "sign-in")
    await sign_in(page, stack)
    await _take(page, "empty")
    await press(page, "New workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("web-shop")
    await dialog.get_by_label("Description").fill("checkout and payments")
    await _take(page, "create")
    await dialog.get_by_role("button", name="Create").click()
    await expect(card(page, "web-shop")).to_contain_text("installing code-server")
    await _take(page, "installing")
    ide = await open_workspace(page, "web-shop")
    await expect(ide.locator(".monaco-workbench .part.editor")).to_be_visible()
    await _take(ide, "ide")
    await ide.close()
    await _furnish(page, stack)
    phone = await _window(browser, "dark", 390, 780)
    await sign_in(phone, stack)
    await press(page, "Restore thesis")
    await expect(card(page, "thesis")).to_contain_text(re.compile(r"[1-9]\d %, .+ of 3\.0 GB"))
    await page.set_viewport_size({"width": 1100, "height": 640})
    await _take(page, "workspaces")
    await page.set_viewport_size({"width": 1100, "height": 720})
    await _take(phone, "phone-dark")
    await page.get_by_role("link", name="thesis", exact=True).click()
    await expect(page.locator(".timeline li").first).to_be_visible()
    await _take(page, "progress")
    await _pages(page, stack)
    await phone.get_by_role("link", name="web-shop", exact=True).click()
    await _loaded(phone)
    await _take(phone, "phone-workspace")
    dark = await _window(browser, "dark", 1100, 720)
    await sign_in(dark, stack)
    await expect(card(dark, "web-shop")).to_be_visible()
    await _take(dark, "dark")
    await page.goto(f"{stack.url}/#/")
    await live(page)
    await asyncio.to_thread(stack.end)
    await expect(page.get_by_text("CodeHub does not answer.")).to_be_visible()
    await _take(page, "offline")


async def _furnish(page: Page, stack: Stack) -> None:
    """The other workspaces, each brought to its state as a person would."""
    for name, description in (
        ("paper-2025", "the camera-ready version"),
        ("old-blog", "moved away in spring"),
        ("data-pipeline", "nightly import"),
        ("thesis", "chapters and figures"),
        ("api-gateway", "rate limits per tenant"),
    ):
        await create(page, name, Description=description)
        await expect(_state(page, name, "Running")).to_be_visible()
    home = await asyncio.to_thread(stack.home_of, "thesis")
    await asyncio.to_thread(_fill, home / "figures.bin")
    for verb, name, state in (
        ("Archive", "paper-2025", "Archived"),
        ("Archive", "thesis", "Archived"),
        ("Stop", "data-pipeline", "Asleep"),
        ("Stop", "old-blog", "Asleep"),
    ):
        await press(page, f"{verb} {name}")
        await expect(_state(page, name, state)).to_be_visible()
    await page.get_by_role("link", name="web-shop", exact=True).click()
    await press(page, "Edit web-shop")
    await page.get_by_role("dialog").get_by_label("Memo").fill("left off at the refund tests")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await page.get_by_role("link", name="Workspaces", exact=True).click()


def _fill(path: Path) -> None:
    with path.open("wb") as out:
        for _ in range(_THESIS_BYTES // 10_000_000):
            out.write(os.urandom(10_000_000))
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


async def _pages(page: Page, stack: Stack) -> None:
    await page.goto(f"{stack.url}/#/")
    await asyncio.to_thread(stack.lose_home, "old-blog")
    await press(page, "Start old-blog")
    await expect(_state(page, "old-blog", "Error")).to_be_visible()
    for name, workspace in (("error", "old-blog"), ("workspace", "web-shop")):
        await page.goto(f"{stack.url}/#/")
        await page.get_by_role("link", name=workspace, exact=True).click()
        await _loaded(page)
        if name == "workspace":
            await expect(page.get_by_text("Uses ")).to_be_visible()
        await page.set_viewport_size({"width": 1100, "height": 980})
        await _take(page, name)
        await page.set_viewport_size({"width": 1100, "height": 720})
    await press(page, "Delete web-shop")
    await _take(page, "delete")
    await page.keyboard.press("Escape")
    for name, where, seen in (
        ("account", "account", "this one"),
        ("admin-system", "admin", " leads."),
        ("admin-workspaces", "admin/workspaces", "web-shop"),
        ("admin-users", "admin/users", "ada"),
    ):
        await page.goto(f"{stack.url}/#/{where}")
        if name == "account":
            await press(page, "New token")
            await page.get_by_role("dialog").get_by_label("Name").fill("laptop")
            await page.get_by_role("dialog").get_by_role("button", name="Create token").click()
            await press(page, "I have copied it")
            await expect(page.get_by_text("laptop", exact=True)).to_be_visible()
        if name == "admin-users":
            await press(page, "New user")
            await page.get_by_role("dialog").get_by_label("User name").fill("ada")
            await page.get_by_role("dialog").get_by_label("Password").fill("long enough")
            await page.get_by_role("dialog").get_by_role("button", name="Create user").click()
        await expect(page.get_by_text(seen).first).to_be_visible()
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        await _take(page, name)


def _state(page: Page, name: str, word: str) -> Locator:
    return card(page, name).get_by_text(word, exact=True)


async def _loaded(page: Page) -> None:
    await expect(page.locator(".timeline li").first).to_be_visible()
    await expect(page.get_by_role("log")).not_to_be_empty()


async def _window(browser: Browser, scheme: str, width: int, height: int) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    return await with_long_timeouts(context).new_page()


async def _take(page: Page, name: str) -> None:
    await page.evaluate("window.scrollTo(0, 0)")
    await page.screenshot(path=SCREENS / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    asyncio.run(main())
