"""`make screens`, sari's part: pictures of its page into docs/sari/screens, taken from a real daemon on its own source."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, expect

from testing.browser import chromium, with_long_timeouts
from testing.sari.home import SariHome, sari_home
from testing.sari.shim import Shim

REPOSITORY: Final = Path(__file__).parent.parent
SCREENS: Final = REPOSITORY / "docs" / "sari" / "screens"


async def sari_screens(out_dir: Path = SCREENS) -> None:
    """Take them all again."""
    out_dir.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="sari-screens-"))
    try:
        with sari_home(place) as home:
            shutil.copytree(
                REPOSITORY / "packages/sari/src",
                home.workspace / "src",
                ignore=shutil.ignore_patterns("__pycache__"),
            )
            home.sari("install", "--host", "all")
            client = Shim(home.environment, home.workspace)
            try:
                client.initialize()
                client.call("search", {"query": "daemon"})
                async with chromium() as browser:
                    await _take_all(browser, home, out_dir)
            finally:
                client.kill()
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _take_all(browser: Browser, home: SariHome, out_dir: Path) -> None:
    page = await _open(browser, home, "light")
    await page.get_by_role("searchbox").fill("lease")
    await page.locator("#results .hit", has_text="def lease").first.click()
    await expect(page.locator("#source .here")).to_be_visible()
    await page.screenshot(path=out_dir / "search.png")
    await page.keyboard.press("Escape")
    await expect(page.locator("#viewer")).to_be_hidden()
    await page.get_by_label("What to search").select_option("symbols")
    await page.get_by_role("searchbox").fill("Registry")
    await page.locator("#results .hit", has_text="class Registry").first.click()
    await expect(page.locator("#source .here")).to_contain_text("class Registry")
    await page.get_by_text("Outline").click()
    await page.screenshot(path=out_dir / "symbols.png")
    await page.get_by_role("button", name="Status", exact=True).click()
    await expect(page.locator("#doctor-table .verdict")).to_be_visible()
    await page.screenshot(path=out_dir / "status.png", full_page=True)
    dark = await _open(browser, home, "dark")
    await dark.get_by_role("searchbox").fill("lease")
    await expect(dark.locator("#results .hit").first).to_be_visible()
    await dark.screenshot(path=out_dir / "dark.png")


async def _open(browser: Browser, home: SariHome, scheme: str) -> Page:
    context = await browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await with_long_timeouts(context).new_page()
    done = await asyncio.to_thread(home.sari, "web", "--no-open")
    await page.goto(done.stdout.strip())
    await expect(page.locator("#index-state")).to_contain_text("ready")
    return page


if __name__ == "__main__":
    asyncio.run(sari_screens())
