"""The real IDEs in a real browser on a real CodeHub (`codehub up`): work, restarts of the proxy, an idle tab, waking."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping

import psutil
import pytest
from playwright.async_api import BrowserContext, Page, expect

from e2e.ide_tabs import (
    CODE_SERVER_TERMINAL,
    EDITOR,
    FRESH_LAB,
    JUPYTER_TERMINAL,
    LAB,
    TIMEOUT_S,
    WORKBENCH,
    Workspace,
    arrives,
    holds,
    new_jupyter_terminal,
    run_in_notebook,
    run_in_terminal,
    tab_from_the_dashboard,
    until,
)
from e2e.pages import sign_in
from e2e.stacks import code_server_stack
from testing.codehub.full_stack import Stack

pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.timeout(900),
    pytest.mark.full_chromium,
]

# What an idle tab may sleep after, in the last test. Real: the TTL Runner puts it to sleep.
TTL_S = 15.0
SLEEPY = {"TTL_STANDBY_SECONDS": f"{TTL_S:g}", "ACTIVITY_FLUSH_INTERVAL": "1", "COORDINATOR_TTL_INTERVAL": "1"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One CodeHub for all of them, at the same addresses after a restart."""
    with code_server_stack() as made:
        yield made


@pytest.fixture(scope="module")
def rooms(stack: Stack) -> Mapping[str, Workspace]:
    """A workspace of each IDE, on their way up."""
    return {profile: Workspace(stack, profile, profile) for profile in ("code-server", "jupyterlab")}


async def restart_proxy(stack: Stack) -> None:
    """As an update would: SIGTERM, and `up` starts another."""
    assert stack.process is not None
    children = psutil.Process(stack.process.pid).children()
    (proxy,) = [child for child in children if "proxy" in child.cmdline()]
    proxy.send_signal(signal.SIGTERM)
    await asyncio.to_thread(proxy.wait, 60)


async def test_code_server_works_and_connects_again_after_a_restart_of_the_proxy(
    stack: Stack, rooms: Mapping[str, Workspace], browser_context: BrowserContext
) -> None:
    room = rooms["code-server"]
    await room.comes_to(phase="RUNNING")
    notes = room.home / "notes.txt"
    notes.write_text("first line\n")
    notes.chmod(0o666)
    page = await tab_from_the_dashboard(stack, browser_context, "code-server")

    # The file tree, an edit, and a save.
    await page.get_by_role("treeitem", name="notes.txt").dblclick()
    await page.locator(EDITOR).click()
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
    await expect(page.locator(EDITOR)).to_contain_text("written")  # it is open again


async def test_jupyterlab_has_kernel_and_terminal_that_connect_again_after_a_restart_of_the_proxy(
    stack: Stack, rooms: Mapping[str, Workspace], browser_context: BrowserContext
) -> None:
    """It takes 1001 for an end that is meant: after every restart its kernels and terminals were dead (ADR 0204)."""
    room = rooms["jupyterlab"]
    await room.comes_to(phase="RUNNING")
    page = await tab_from_the_dashboard(stack, browser_context, "jupyterlab")
    await page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    await run_in_notebook(page, "kept = 6 * 7; print('first', kept)", "first 42")
    await restart_proxy(stack)
    await run_in_notebook(page, "print('again', kept + 1)", "again 43")
    await page.keyboard.press("Control+S")

    await page.goto(room.address + FRESH_LAB)
    await new_jupyter_terminal(page)
    await run_in_terminal(page, JUPYTER_TERMINAL, "echo typed", room.home / "one.txt")
    await restart_proxy(stack)
    await run_in_terminal(page, JUPYTER_TERMINAL, "echo typed", room.home / "two.txt")


async def test_typing_keeps_it_up_an_idle_tab_does_not_and_opening_it_again_wakes_it(
    stack: Stack, rooms: Mapping[str, Workspace], browser_context: BrowserContext
) -> None:
    """With a TTL of seconds, in both IDEs at once. Ctrl-C leaves them running, and the next `up` takes them over."""
    await asyncio.gather(*(room.comes_to(phase="RUNNING") for room in rooms.values()))
    (rooms["code-server"].home / "idle.txt").write_text("x\n")
    await asyncio.to_thread(stack.end)
    stack.environment |= SLEEPY
    await asyncio.to_thread(stack.up)
    dashboard = await browser_context.new_page()
    await sign_in(dashboard, stack)
    await dashboard.close()

    async def open_file(page: Page) -> None:
        await page.get_by_role("treeitem", name="idle.txt").dblclick()

    async with asyncio.TaskGroup() as both:
        for name, path, arrived, take_place, place in (
            ("code-server", "", WORKBENCH, open_file, EDITOR),
            ("jupyterlab", FRESH_LAB, LAB, new_jupyter_terminal, JUPYTER_TERMINAL),
        ):
            page = await browser_context.new_page()
            address = rooms[name].address + path
            both.create_task(types_idles_and_wakes(rooms[name], page, address, arrived, take_place, place))


async def types_idles_and_wakes(
    room: Workspace,
    page: Page,
    address: str,
    arrived: str,
    take_place: Callable[[Page], Awaitable[None]],
    place: str,
) -> None:
    """`arrived` and `place` are selectors: the IDE is there, and where one types in it."""

    async def begin() -> None:
        await page.goto("about:blank")
        await page.goto(address, wait_until="commit")
        await arrives(page, arrived)
        await take_place(page)

    async def act() -> None:
        await page.locator(place).first.click()
        await page.keyboard.type("x")

    await room.stays_up_while(begin, act, TTL_S)
    await expect(page).to_have_title(re.compile(rf"^{room.name} · "))
    # From here on the open tab is idle. It says so itself, and keeps what is typed into it.
    await room.comes_to(phase="STANDBY", desired_state="STANDBY")
    dialog = page.get_by_role("dialog", name=f"{room.name} is asleep")
    await expect(dialog).to_be_visible(timeout=TIMEOUT_S * 1000)
    await dialog.get_by_role("textbox").fill("typed while asleep")
    assert (await asyncio.to_thread(room.now))["desired_state"] == "STANDBY", "neither the page nor typing wakes it"
    await dialog.get_by_role("button", name="Wake up").click()
    await room.comes_to(phase="RUNNING")
    kept = page.get_by_role("region", name="Typed while asleep")
    await expect(kept.get_by_role("textbox")).to_have_value(
        re.compile("typed while asleep$"), timeout=TIMEOUT_S * 1000
    )
    await arrives(page, arrived)
    # Opening it again wakes it, too.
    await asyncio.to_thread(room.stop)
    await room.comes_to(phase="STANDBY")
    await page.goto("about:blank")
    answer = await page.goto(address, wait_until="commit")
    assert answer is not None
    assert answer.status == 503  # the page that tells of the waking
    # Both at once: on a slow machine it may sleep again before its page is complete.
    async with asyncio.TaskGroup() as woken:
        woken.create_task(room.comes_to(phase="RUNNING"))
        woken.create_task(arrives(page, arrived))
