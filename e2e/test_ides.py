"""The real IDEs in a real browser on a real CodeHub (`codehub up`): work, restarts, an idle tab, sleep and waking."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator

import psutil
import pytest
from playwright.async_api import BrowserContext, Page, expect

from e2e.ide_tabs import (
    CODE_SERVER_TERMINAL,
    JUPYTER_TERMINAL,
    WORKBENCH,
    Workspace,
    arrives,
    holds,
    open_jupyter_terminal,
    opened_from_the_dashboard,
    run_in_notebook,
    run_in_terminal,
    until,
)
from testing.ide import IDE_DIR, installed_code_server
from testing.whole import Stack, fresh_stack

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("bwrap", "npm"),
    pytest.mark.xdist_group("interfaces"),
    pytest.mark.timeout(900),
]

# What an idle tab may sleep after, in the second half of each test. Real: the TTL Runner puts it to sleep.
TTL_S = 10.0
SLEEPY = {"TTL_STANDBY_SECONDS": f"{TTL_S:g}", "ACTIVITY_FLUSH_INTERVAL": "1", "COORDINATOR_TTL_INTERVAL": "1"}


@pytest.fixture
def stack() -> Iterator[Stack]:
    with fresh_stack() as made:
        yield made


async def restart_proxy(stack: Stack) -> None:
    """As an update would: SIGTERM, and `up` starts another."""
    assert stack.process is not None
    children = psutil.Process(stack.process.pid).children()
    (proxy,) = [child for child in children if "proxy" in child.cmdline()]
    proxy.send_signal(signal.SIGTERM)
    await asyncio.to_thread(proxy.wait, 60)


async def restart_with_a_short_ttl(stack: Stack) -> None:
    """Ctrl-C leaves workspaces running, and the next `up` takes them over."""
    # At the same addresses, for the tab that is open.
    same = {name: stack.value(name) for name in ("CODEHUB_API_BIND", "CODEHUB_PROXY_BIND")}
    await asyncio.to_thread(stack.end)
    stack.environment |= SLEEPY | same
    await asyncio.to_thread(stack.up)


async def sleeps_and_wakes(room: Workspace, page: Page, arrived: str) -> None:
    """The open tab is idle until the workspace sleeps; opened again it wakes, and the page comes by itself."""
    await room.comes_to(phase="STANDBY", desired_state="STANDBY")
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Your workspace is waking up")).to_be_visible()
    await arrives(page, arrived)
    await room.comes_to(phase="RUNNING")


async def test_code_server_works_survives_restarts_sleeps_and_wakes(
    stack: Stack, browser_context: BrowserContext
) -> None:
    await asyncio.to_thread(installed_code_server)
    (stack.data_dir / "ide").symlink_to(IDE_DIR)
    await asyncio.to_thread(stack.up)
    room = await asyncio.to_thread(Workspace, stack, "work", "code-server")
    await room.comes_to(phase="RUNNING")
    notes = room.home / "notes.txt"
    notes.write_text("first line\n")
    notes.chmod(0o666)
    page = await opened_from_the_dashboard(stack, browser_context, "work")

    # The file tree, an edit, and a save.
    await page.get_by_role("treeitem", name="notes.txt").dblclick()
    lines = page.locator(".editor-instance .view-lines")
    await lines.click()
    await page.keyboard.press("Control+Home")
    await page.keyboard.type("written in the browser ")
    await page.keyboard.press("Control+S")
    await until(lambda: holds(notes, "written in the browser"), "the edit is saved")
    # Search.
    await page.keyboard.press("Control+Shift+F")
    await page.locator(".search-view .search-widget textarea").first.fill("written in")
    await page.keyboard.press("Enter")
    await expect(page.locator(".search-view .messages")).to_contain_text(re.compile(r"\d+ results? in \d+ file"))
    # A terminal.
    await page.keyboard.press("Control+Backquote")
    await page.wait_for_selector(CODE_SERVER_TERMINAL)
    await run_in_terminal(page, CODE_SERVER_TERMINAL, "echo typed", room.home / "one.txt")
    # A restart of the proxy: the open tab connects again by itself and goes on.
    await restart_proxy(stack)
    await run_in_terminal(page, CODE_SERVER_TERMINAL, "echo typed", room.home / "two.txt")
    await page.reload()
    await page.wait_for_selector(WORKBENCH)

    await restart_with_a_short_ttl(stack)
    await page.reload()
    await page.wait_for_selector(WORKBENCH)
    await lines.click()  # the file that was open is open again

    async def type_on() -> None:
        await page.keyboard.type("x")

    await room.stays_up_while(type_on, TTL_S)
    await sleeps_and_wakes(room, page, WORKBENCH)
    assert "written in the browser" in notes.read_text()


async def test_jupyterlab_works_survives_restarts_sleeps_and_wakes(
    stack: Stack, browser_context: BrowserContext
) -> None:
    await asyncio.to_thread(stack.up)
    room = await asyncio.to_thread(Workspace, stack, "lab", "jupyterlab")
    await room.comes_to(phase="RUNNING")
    page = await opened_from_the_dashboard(stack, browser_context, "lab")

    # A kernel.
    await run_in_notebook(page, "print(6 * 7)", "42")
    await page.keyboard.press("Control+S")
    # A terminal.
    await open_jupyter_terminal(page)
    await run_in_terminal(page, JUPYTER_TERMINAL, "echo typed", room.home / "one.txt")

    await restart_with_a_short_ttl(stack)
    await open_jupyter_terminal(page)

    async def type_on() -> None:
        await page.locator(JUPYTER_TERMINAL).first.click()
        await page.keyboard.type("x")

    await room.stays_up_while(type_on, TTL_S)
    await sleeps_and_wakes(room, page, "#jp-main-dock-panel")
