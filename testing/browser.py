"""A real Chromium for tests of pages, and what a page may never do.

`browser` is launched for each test: an async Playwright cannot outlive the test's event loop, and a browser that died in
one test must not sink the next. `page` is a fresh page in a fresh context; whatever the page throws or logs as an error
fails the test at its end, unless the test says which it expects (`page_faults.clear()`).

A test that uses any of these is put into the group "interfaces" (a network bridge that comes or goes is
ERR_NETWORK_CHANGED to Chromium) and needs the part "chromium" without saying so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright, expect
from playwright.async_api import Error as PlaywrightError

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Two workers and their services share two cores: what takes half a second alone may take a minute.
PATIENCE_MS = 90_000
_LAUNCHES = 3
# `expect` has a patience of its own, five seconds unless told.
expect.set_options(timeout=PATIENCE_MS)


async def launch(playwright: Playwright) -> Browser:
    """One headless Chromium; a launch that fails on a crowded machine is tried again."""
    for attempt in range(_LAUNCHES):
        try:
            return await playwright.chromium.launch(
                executable_path=CHROMIUM, headless=True, args=list(FLAGS), timeout=PATIENCE_MS
            )
        except PlaywrightError:
            if attempt == _LAUNCHES - 1:
                raise
    raise AssertionError("unreachable")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser for a script (`make screens`) or a test that wants more than one."""
    async with async_playwright() as playwright:
        started = await launch(playwright)
        try:
            yield started
        finally:
            await started.close()


def patient(context: BrowserContext) -> BrowserContext:
    """Let every wait of this context take as long as a crowded machine needs."""
    context.set_default_timeout(PATIENCE_MS)
    context.set_default_navigation_timeout(PATIENCE_MS)
    return context


def watch_faults(page: Page, faults: list[str]) -> None:
    """Collect what the page throws and what it logs as an error."""
    page.on("pageerror", lambda error: faults.append(f"thrown: {error}"))
    page.on("console", lambda message: faults.append(f"logged: {message.text}") if message.type == "error" else None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark before testing.parts looks at `needs` and xdist at the groups."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("chromium"))
            item.add_marker(pytest.mark.xdist_group("interfaces"))


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture
async def browser_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = patient(await browser.new_context(viewport={"width": 1280, "height": 800}))
    yield context
    await context.close()


@pytest.fixture
def page_faults() -> list[str]:
    """What the page complained of so far; a test clears what it provoked on purpose."""
    return []


@pytest.fixture
async def page(browser_context: BrowserContext, page_faults: list[str]) -> AsyncIterator[Page]:
    opened = await browser_context.new_page()
    watch_faults(opened, page_faults)
    yield opened
    assert not page_faults, f"the page complained: {page_faults}"
