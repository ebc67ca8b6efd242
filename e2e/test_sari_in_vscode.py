"""VS Code itself (the one in code-server) finds sari through what `sari install` wrote, starts it and lists its tools."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Locator, Page, TimeoutError, expect

from testing.codehub.ide import installed_code_server
from testing.sari.home import TIMEOUT_S, SariHome, sari_home

# Soak: code-server takes minutes to install, and nothing else in `make test` needs it.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.needs("npm", "g++")]

_SOON_MS = 5_000

_SETTINGS = {
    "chat.commandCenter.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
}


@asynccontextmanager
async def vscode(home: SariHome, place: Path) -> AsyncIterator[str]:
    """It runs on this workspace, with its user's files where VS Code has them. Yields its address."""
    programs = await asyncio.to_thread(installed_code_server)
    data = home.home / ".config" / "Code"
    (data / "User").mkdir(parents=True, exist_ok=True)
    (data / "User" / "settings.json").write_text(json.dumps(_SETTINGS))
    command = [
        str(programs / "code-server"),
        "--auth",
        "none",
        "--bind-addr",
        "127.0.0.1:0",
        "--user-data-dir",
        str(data),
    ]
    command += ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    command += ["--disable-getting-started-override", str(home.workspace)]
    with open(place / "vscode.log", "w+b") as log:
        process = subprocess.Popen(
            command, env=home.environment, cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield await asyncio.wait_for(_address(place / "vscode.log"), TIMEOUT_S)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


async def _address(log: Path) -> str:
    while True:
        for line in log.read_text().splitlines():
            _, said, address = line.partition("HTTP server listening on ")
            if said:
                return address.strip()
        await asyncio.sleep(0.1)


def choices(page: Page, text: str) -> Locator:
    return page.locator(".quick-input-list .monaco-list-row", has_text=text)


async def list_servers(page: Page) -> None:
    """Until it is there: while VS Code is still starting it takes the focus away from what a person opens."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await page.keyboard.press("F1")
            with suppress(TimeoutError, AssertionError):
                await page.locator(".quick-input-box input").fill(">MCP: List Servers", timeout=_SOON_MS)
                await choices(page, "MCP: List Servers").first.click(timeout=_SOON_MS)
                await expect(choices(page, "Add Server")).to_be_visible(timeout=_SOON_MS)
                return
            await page.keyboard.press("Escape")


async def started(page: Page) -> None:
    """Started by hand, again if need be: in its first seconds VS Code has nobody yet who could start a server."""
    while True:
        await list_servers(page)
        if await choices(page, "sari").filter(has_text="Running").count():
            return
        with suppress(TimeoutError):
            await choices(page, "sari").click(timeout=_SOON_MS)
            await choices(page, "Start Server").first.click(timeout=_SOON_MS)
        await page.keyboard.press("Escape")
        await asyncio.sleep(1)


@pytest.mark.parametrize("scope", ["user", "project"])
async def test_vscode_starts_sari(browser_context: BrowserContext, tmp_path: Path, scope: str) -> None:
    # A page nobody watches: what code-server logs in its own is not ours to judge.
    page = await browser_context.new_page()
    with sari_home(tmp_path) as home:
        home.write("main.py", "def needle():\n    pass\n")
        done = await asyncio.to_thread(home.sari, "install", "--host", "vscode", "--scope", scope)
        assert done.returncode == 0, done.stderr
        async with vscode(home, tmp_path) as address:
            await page.goto(address)
            await expect(page.get_by_role("treeitem", name="main.py")).to_be_visible()
            await asyncio.wait_for(started(page), TIMEOUT_S)
