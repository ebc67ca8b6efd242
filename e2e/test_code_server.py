"""A day in code-server: `code FILE`, text that was not saved, VS Code's Recent, and an idle tab beside a busy neighbour."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator

import pytest
from playwright.async_api import BrowserContext, Page, expect

from e2e.ide_tabs import (
    CODE_SERVER_TERMINAL,
    EDITOR,
    TIMEOUT_S,
    WORKBENCH,
    Workspace,
    arrives,
    run_in_terminal,
    until,
)
from e2e.pages import sign_in
from e2e.stacks import code_server_stack
from testing.codehub.full_stack import Stack

pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.timeout(900),
]

SLEEPY = {"TTL_STANDBY_SECONDS": "15", "ACTIVITY_FLUSH_INTERVAL": "1", "COORDINATOR_TTL_INTERVAL": "1"}
# Opens a port again and again, and computes.
BUSY = (
    "(while :; do timeout 2 python3 -m http.server 8123; done >/dev/null 2>&1 &"
    " while :; do :; done >/dev/null 2>&1 &); echo typed"
)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with code_server_stack() as made:
        yield made


@pytest.fixture(scope="module")
def quiet(stack: Stack) -> Workspace:
    return Workspace(stack, "quiet", "code-server")


@pytest.fixture(scope="module")
def busy(stack: Stack) -> Workspace:
    return Workspace(stack, "busy", "code-server")


async def sign_in_only(stack: Stack, context: BrowserContext) -> None:
    page = await context.new_page()
    await sign_in(page, stack)
    await page.close()


async def window(context: BrowserContext, room: Workspace, folder: str = "") -> Page:
    """Open the IDE, signed in already. Its address as the server says it now: path mode has another."""
    await room.comes_to(phase="RUNNING")
    page = await context.new_page()
    await page.goto(f"{(await asyncio.to_thread(room.now))['url']}{folder}")
    await arrives(page, WORKBENCH)
    return page


async def restart(stack: Stack, **environment: str) -> None:
    """Ctrl-C leaves the workspaces running, and the next `up` takes them over."""
    await asyncio.to_thread(stack.end)
    stack.environment |= environment
    await asyncio.to_thread(stack.up)


# VS Code's own database of this page.
RECENT = """() => new Promise((done, fail) => {
  const request = indexedDB.open("vscode-web-state-db-global");
  request.onerror = fail;
  request.onsuccess = () => {
    const store = request.result.transaction("ItemTable").objectStore("ItemTable");
    const found = store.get("recently.opened");
    found.onerror = fail;
    found.onsuccess = () => { request.result.close(); done(`${found.result}`); };
  };
})"""


async def is_stored(page: Page, folder: str) -> bool:
    return folder in await page.evaluate(RECENT)


async def test_code_opens_a_file_from_the_ides_terminal_and_from_any_other_shell(
    stack: Stack, quiet: Workspace, busy: Workspace, browser_context: BrowserContext
) -> None:
    await sign_in_only(stack, browser_context)
    page = await window(browser_context, quiet)
    for name in ("inside.txt", "outside.txt"):
        (quiet.home / name).write_text(f"this is {name}\n")
    await page.keyboard.press("Control+Backquote")
    await page.wait_for_selector(CODE_SERVER_TERMINAL)
    await run_in_terminal(page, CODE_SERVER_TERMINAL, "code inside.txt; echo typed", quiet.home / "one.txt")
    await expect(page.locator(EDITOR)).to_contain_text("this is inside.txt")
    # From a shell that is not the IDE's.
    opened = await asyncio.to_thread(quiet.exec, "code", "outside.txt")
    assert opened.returncode == 0, opened.stderr
    await expect(page.locator(EDITOR)).to_contain_text("this is outside.txt")
    # Where no window was ever open.
    await busy.comes_to(phase="RUNNING")
    refused = await asyncio.to_thread(busy.exec, "code", "x.txt")
    assert refused.returncode == 1
    assert "Open the workspace in your browser" in refused.stderr + refused.stdout


async def test_text_that_was_not_saved_is_there_again_after_the_workspace_slept(
    stack: Stack, quiet: Workspace, browser_context: BrowserContext
) -> None:
    """Also without VS Code's automatic save, and in a file that has no name yet."""
    await quiet.comes_to(phase="RUNNING")
    settings = quiet.home / ".local/share/code-server/User/settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "files.autoSave": "off"}))
    notes = quiet.home / "notes.txt"
    notes.write_text("saved\n")
    notes.chmod(0o666)
    await sign_in_only(stack, browser_context)
    page = await window(browser_context, quiet)
    await page.get_by_role("treeitem", name="notes.txt").dblclick()
    await expect(page.locator(EDITOR)).to_contain_text("saved")
    await page.locator(EDITOR).click()
    await page.keyboard.press("Control+Home")
    await page.keyboard.type("unsaved in a file ")
    await page.keyboard.press("F1")
    await page.keyboard.type("New Untitled Text File")
    await page.locator(".quick-input-list .monaco-list-row").first.wait_for()
    await page.keyboard.press("Enter")
    await expect(page.locator(".tabs-container .tab.active")).to_contain_text("Untitled-1")
    await page.locator(EDITOR).last.click()
    await page.keyboard.type("unsaved without a name")

    async def backed_up() -> bool:
        kept = [path.read_text() for path in settings.parent.glob("Backups/*/*/*") if path.is_file()]
        return all(any(text in one for one in kept) for text in ("unsaved in a file", "unsaved without a name"))

    await until(backed_up, "VS Code wrote its backups")
    assert "unsaved" not in notes.read_text()

    page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await asyncio.to_thread(quiet.stop)
    asleep = page.get_by_role("dialog", name="quiet is asleep")
    await expect(asleep).to_be_visible(timeout=TIMEOUT_S * 1000)
    await asleep.get_by_role("button", name="Wake up").click()
    await quiet.comes_to(phase="RUNNING")
    await expect(asleep).to_be_hidden(timeout=TIMEOUT_S * 1000)
    await arrives(page, WORKBENCH)
    await expect(page.locator(EDITOR).last).to_contain_text("unsaved without a name", timeout=TIMEOUT_S * 1000)
    await page.locator(".tabs-container .tab", has_text="notes.txt").click()
    await expect(page.locator(EDITOR).last).to_contain_text("unsaved in a file saved")


@pytest.mark.parametrize("mode", ["hosts", "paths"])
async def test_recent_lists_the_workspaces_own_folders_only(
    stack: Stack, quiet: Workspace, busy: Workspace, browser_context: BrowserContext, mode: str
) -> None:
    if mode == "paths":  # where all workspaces share one origin
        await restart(stack, CODEHUB_WORKSPACE_HOST="none")
    await sign_in_only(stack, browser_context)

    async def own_folders_only(page: Page, room: Workspace, other: Workspace) -> None:
        await page.keyboard.press("Control+R")
        rows = page.locator(".quick-input-list .monaco-list-row")
        await expect(rows.filter(has_text=f"only-{room.name}")).to_be_visible()
        await expect(rows.filter(has_text=f"only-{other.name}")).to_have_count(0)

    for room in (quiet, busy):
        await room.comes_to(phase="RUNNING")
        (room.home / f"only-{room.name}").mkdir(exist_ok=True)
        page = await window(browser_context, room, f"?folder=/home/coder/only-{room.name}")
        await until(functools.partial(is_stored, page, f"only-{room.name}"), "VS Code stored its Recent")
        if room is busy:  # a window costs seconds of CPU, and this one was opened when the other's folder was stored
            await own_folders_only(page, busy, quiet)
        await page.close()
    page = await window(browser_context, quiet, "?folder=/home/coder")
    await own_folders_only(page, quiet, busy)


# In `make soak`: it takes minutes on a busy machine. `test_ttl_guards` and `test_background_traffic` test two reasons
# for which the quiet workspace can stay awake: ticks that come late, and the log of the window.
@pytest.mark.soak
async def test_an_idle_tab_sleeps_while_its_neighbour_opens_ports_and_computes(
    stack: Stack, quiet: Workspace, busy: Workspace, browser_context: BrowserContext
) -> None:
    """Both tabs are open and nobody touches them. code-server once reported the neighbour's ports, and never slept."""
    await sign_in_only(stack, browser_context)
    working = await window(browser_context, busy)
    await working.keyboard.press("Control+Backquote")
    await working.wait_for_selector(CODE_SERVER_TERMINAL)
    await run_in_terminal(working, CODE_SERVER_TERMINAL, BUSY, busy.home / "busy.txt")
    # Its job is in the background, which alone keeps no workspace awake.
    await asyncio.to_thread(busy.keep_awake)
    await window(browser_context, quiet)
    await restart(stack, **SLEEPY)
    await quiet.comes_to(phase="STANDBY", desired_state="STANDBY")
    seen = await asyncio.to_thread(busy.now)
    assert (seen["phase"], seen["desired_state"]) == ("RUNNING", "RUNNING"), seen
    await asyncio.to_thread(busy.stop)
    await busy.comes_to(phase="STANDBY")
