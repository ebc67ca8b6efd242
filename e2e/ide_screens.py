"""`make screens`: pictures of the IDEs through the proxy and of a workspace that wakes, taken from a real CodeHub."""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, expect

from e2e.ide_tabs import (
    CODE_SERVER_TERMINAL,
    LAB,
    WORKBENCH,
    Workspace,
    arrives,
    holds,
    run_in_notebook,
    run_in_terminal,
    tab_from_the_dashboard,
    until,
)
from e2e.screens import SCREENS
from testing.browser import chromium, with_long_timeouts
from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import fresh_stack
from testing.codehub.ide import IDE_DIR, installed_code_server


async def main() -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    installed_code_server()
    with fresh_stack() as stack:
        (stack.data_dir / "ide").symlink_to(IDE_DIR)
        stack.environment["CODEHUB_ADMIN_PASSWORD"] = PASSWORD
        await asyncio.to_thread(stack.up)
        async with chromium() as browser:
            context = with_long_timeouts(await browser.new_context(viewport={"width": 1100, "height": 720}))
            rooms = [Workspace(stack, *room) for room in (("compiler", "code-server"), ("notes", "jupyterlab"))]
            for room in rooms:
                await room.comes_to(phase="RUNNING")
            (rooms[0].home / "hello.py").write_text('print("hello from a workspace")\n')
            await _code_server(await tab_from_the_dashboard(stack, context, "compiler"), rooms[0])
            await context.clear_cookies()
            lab = await tab_from_the_dashboard(stack, context, "notes")
            await lab.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
            await run_in_notebook(lab, "sum(n * n for n in range(10))", "285")
            await _take(lab, "ide-jupyterlab")
            await _waking(lab, rooms[1])


async def _code_server(page: Page, room: Workspace) -> None:
    await page.get_by_role("treeitem", name="hello.py").dblclick()
    await page.wait_for_selector(".editor-instance .view-lines")
    await page.keyboard.press("Control+Backquote")
    await page.wait_for_selector(CODE_SERVER_TERMINAL)
    await run_in_terminal(page, CODE_SERVER_TERMINAL, "echo typed", room.home / ".listens")
    await page.keyboard.type("clear; python3 hello.py | tee out.txt\n")
    await until(lambda: holds(room.home / "out.txt", "hello"), "the program ran")
    await page.get_by_role("treeitem", name="out.txt").wait_for()
    await page.wait_for_selector(WORKBENCH)
    await _take(page, "ide-code-server")
    await page.close()


async def _waking(page: Page, room: Workspace) -> None:
    room.stop()
    await room.comes_to(phase="STANDBY")
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Your workspace is waking up")).to_be_visible()
    await _take(page, "workspace-waking")
    await arrives(page, LAB)


async def _take(page: Page, name: str) -> None:
    await page.screenshot(path=SCREENS / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    asyncio.run(main())
