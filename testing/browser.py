"""A real Chromium for tests of pages, with checks that hold for every page.

`browser` is launched for each test: an async Playwright cannot outlive the test's event loop, and a browser that died in
one test must not break the next. `page` is a fresh page in a fresh context. Exceptions and logged errors of the page fail
the test at its end, unless the test expects them (`page_faults.clear()`).

A test that uses any of these fixtures needs the part "chromium" implicitly. Chromium does not notice network interfaces
that other tests create (`quiet_chromium`).

The browser is Chromium's headless shell, the same engine for half of the CPU. Tests of what the browser itself permits
or refuses (cookies, origins, host names) and the tour of the real IDEs are marked `full_chromium`, for the one that people
use.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, async_playwright, expect
from playwright.async_api import Error as PlaywrightError

from testing.quiet_chromium import FULL

CHROMIUM = str(Path(__file__).with_name("quiet_chromium.py"))
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
TIMEOUT_MS = 90_000
_LAUNCHES = 3
# Closing takes a second or two. Once it took longer than the whole test may, after everything was checked.
_CLOSES_WITHIN_S = 60.0
# Playwright's driver is a large program that Node.js compiles for every browser: a quarter of what it takes to start.
_COMPILED = Path(__file__).resolve().parents[1] / ".parts/node-compile-cache"
# `expect` has a separate timeout, five seconds by default.
expect.set_options(timeout=TIMEOUT_MS)


async def launch(playwright: Playwright, program: str = CHROMIUM, *, full: bool = True) -> Browser:
    """Launch a headless Chromium. Retries, because a launch may fail on a busy machine."""
    for attempt in range(_LAUNCHES):
        try:
            return await playwright.chromium.launch(
                executable_path=program, headless=True, args=[*FLAGS, *([FULL] if full else [])], timeout=TIMEOUT_MS
            )
        except PlaywrightError:
            if attempt == _LAUNCHES - 1:
                raise
    raise AssertionError("unreachable")


@asynccontextmanager
async def _driver() -> AsyncIterator[Playwright]:
    """Yield Playwright. Only its driver gets the variable: the test's other programs are to run as always."""
    os.environ["NODE_COMPILE_CACHE"] = str(_COMPILED)
    async with async_playwright() as playwright:
        del os.environ["NODE_COMPILE_CACHE"]
        yield playwright


async def browser_pid(browser: Browser) -> int:
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    await session.detach()
    return next(int(process["id"]) for process in processes if process["type"] == "browser")


@asynccontextmanager
async def chromium(closes_within_s: float = _CLOSES_WITHIN_S, *, full: bool = True) -> AsyncIterator[Browser]:
    """Yield a browser for a script (`make screens`) or a test that needs more than one.

    A browser that does not close in time is killed.
    """
    async with _driver() as playwright:
        started = await launch(playwright, full=full)
        pid = await browser_pid(started)
        try:
            yield started
        finally:
            try:
                await asyncio.wait_for(started.close(), closes_within_s)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


async def close_context(context: BrowserContext) -> None:
    """Close a context. One that does not close in time is left to its browser's end."""
    with suppress(TimeoutError):
        await asyncio.wait_for(context.close(), _CLOSES_WITHIN_S)


def with_long_timeouts(context: BrowserContext) -> BrowserContext:
    """Give every wait of this context enough time for a busy machine."""
    context.set_default_timeout(TIMEOUT_MS)
    context.set_default_navigation_timeout(TIMEOUT_MS)
    return context


def watch_faults(page: Page, faults: list[str]) -> None:
    """Collect the page's exceptions and logged errors."""
    page.on("pageerror", lambda error: faults.append(f"thrown: {error}"))

    def logged(message: ConsoleMessage) -> None:
        address = str(message.location.get("url", ""))
        # Chromium requests it unasked and at any time. A server that a test runs in a workspace has none.
        if message.type == "error" and not address.endswith("/favicon.ico"):
            faults.append(f"logged: {message.text} {address}")

    page.on("console", logged)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark before testing.parts reads `needs`."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("chromium"))


@pytest.fixture
async def browser(request: pytest.FixtureRequest) -> AsyncIterator[Browser]:
    async with chromium(full=request.node.get_closest_marker("full_chromium") is not None) as started:
        yield started


@pytest.fixture
async def browser_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = with_long_timeouts(await browser.new_context(viewport={"width": 1280, "height": 800}))
    yield context
    await close_context(context)


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
