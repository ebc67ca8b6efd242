"""A real Chromium for tests of pages, with checks that hold for every page.

`browser` is launched for each test: an async Playwright cannot outlive the test's event loop, and a browser that died in
one test must not break the next. `page` is a fresh page in a fresh context. Exceptions and logged errors of the page fail
the test at its end, unless the test expects them (`page_faults.clear()`).

A test that uses any of these fixtures is added to the group "interfaces" (Chromium reports ERR_NETWORK_CHANGED when a
network bridge appears or disappears) and needs the part "chromium" implicitly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, async_playwright, expect
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
# Two workers and their services share two cores: a step that takes half a second alone may take a minute.
PATIENCE_MS = 90_000
_LAUNCHES = 3
# `expect` has a separate timeout, five seconds by default.
expect.set_options(timeout=PATIENCE_MS)


async def launch(playwright: Playwright, program: str = CHROMIUM) -> Browser:
    """Launch a headless Chromium. Retries, because a launch may fail on a busy machine."""
    for attempt in range(_LAUNCHES):
        try:
            return await playwright.chromium.launch(
                executable_path=program, headless=True, args=list(FLAGS), timeout=PATIENCE_MS
            )
        except PlaywrightError:
            if attempt == _LAUNCHES - 1:
                raise
    raise AssertionError("unreachable")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yield a browser for a script (`make screens`) or a test that needs more than one."""
    async with async_playwright() as playwright:
        started = await launch(playwright)
        try:
            yield started
        finally:
            await started.close()


def patient(context: BrowserContext) -> BrowserContext:
    """Give every wait of this context enough time for a busy machine."""
    context.set_default_timeout(PATIENCE_MS)
    context.set_default_navigation_timeout(PATIENCE_MS)
    return context


def watch_faults(page: Page, faults: list[str]) -> None:
    """Collect the page's exceptions and logged errors."""
    page.on("pageerror", lambda error: faults.append(f"thrown: {error}"))

    def logged(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(f"logged: {message.text} {message.location.get('url', '')}")

    page.on("console", logged)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marks before testing.parts reads `needs` and xdist reads the groups."""
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
    """The page's errors so far. A test clears those that it provoked on purpose."""
    return []


@pytest.fixture
async def page(browser_context: BrowserContext, page_faults: list[str]) -> AsyncIterator[Page]:
    opened = await browser_context.new_page()
    watch_faults(opened, page_faults)
    yield opened
    assert not page_faults, f"the page complained: {page_faults}"
