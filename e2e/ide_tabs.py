"""What a person does in an IDE's tab, and how a test waits for what came of it."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from playwright.async_api import BrowserContext, Error, Page

from e2e.pages import open_workspace, sign_in
from testing.codehub.full_stack import Stack

TIMEOUT_S = 150.0
WORKBENCH = ".monaco-workbench .part.statusbar .statusbar-item"
EDITOR = ".editor-instance .view-lines"
CODE_SERVER_TERMINAL = ".terminal-wrapper .xterm-screen"
# Below a workspace's address: JupyterLab with nothing open in it.
FRESH_LAB = "lab/workspaces/fresh?reset"
LAB = "#jp-main-dock-panel"
JUPYTER_TERMINAL = ".jp-Terminal .xterm-screen"


async def until(true: Callable[[], Awaitable[bool]], what: str, within_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + within_s
    while not await true():
        assert time.monotonic() < deadline, f"not so after {within_s:g} s: {what}"
        await asyncio.sleep(0.25)


async def holds(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def tab_from_the_dashboard(stack: Stack, context: BrowserContext, name: str) -> Page:
    """Sign in, and follow the workspace's own link."""
    page = await context.new_page()
    await sign_in(page, stack)
    tab = await open_workspace(page, name)
    await page.close()  # a dashboard is nobody's work; one page less to run
    return tab


async def run_in_notebook(page: Page, code: str, output: str) -> None:
    """In the last cell of the open notebook, again until the kernel answers: one that comes up or connects again loses
    what is run meanwhile."""
    cell = page.locator(".jp-Notebook .jp-Cell .cm-content").last
    await cell.click()
    await page.keyboard.press("Control+A")
    await page.keyboard.type(code)

    async def computed() -> bool:
        await cell.click()
        await page.keyboard.press("Control+Enter")
        await asyncio.sleep(1)
        found = page.locator(".jp-OutputArea-output")
        return bool(await found.count()) and output in await found.last.inner_text()

    await until(computed, "the kernel answers")


async def new_jupyter_terminal(page: Page) -> None:
    """From the launcher, which a fresh layout shows."""
    await page.locator('.jp-LauncherCard:has-text("Terminal")').first.click()
    await page.wait_for_selector(JUPYTER_TERMINAL)


async def run_in_terminal(page: Page, screen: str, command: str, made: Path) -> None:
    """Type a command that leaves text in `made`, again until a shell took it: a terminal is shown before it listens."""

    async def taken() -> bool:
        if await holds(made, "typed"):
            return True
        await page.locator(screen).first.click()
        await page.keyboard.type(f"{command} > {made}\n")
        await asyncio.sleep(1)
        return await holds(made, "typed")

    await until(taken, f"the terminal runs {command}")


class Workspace:
    """One workspace of a running CodeHub, as its owner sees it with an API token."""

    def __init__(self, stack: Stack, name: str, profile: str) -> None:
        self.stack = stack
        self.name = name
        with stack.client() as client:
            made = client.post("/api/v1/workspaces", json={"name": name, "image_ref": profile})
            assert made.status_code == 201, made.text
            self.id = str(made.json()["id"])
            self.address = str(made.json()["url"])
            token = client.post("/api/v1/tokens", json={"name": name})
            assert token.status_code == 201, token.text
        self._token = str(token.json()["token"])
        self._headers = {"Authorization": f"Bearer {self._token}"}

    def now(self) -> dict[str, object]:
        address = f"{self.stack.url}/api/v1/workspaces/{self.id}"
        return dict(httpx.get(address, headers=self._headers, timeout=60, trust_env=False).json())

    def stop(self) -> None:
        address = f"{self.stack.url}/api/v1/workspaces/{self.id}:stop"
        answer = httpx.post(address, headers=self._headers, timeout=60, trust_env=False)
        # On a slow machine it may have fallen asleep by itself.
        assert answer.status_code == 202 or self.now()["desired_state"] == "STANDBY", answer.text

    def keep_awake(self) -> None:
        done = self.stack.run("ws", "keep-awake", self.name, "1h", CODEHUB_TOKEN=self._token)
        assert done.returncode == 0, done.stderr

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the workspace with `codehub ws exec`."""
        return self.stack.run("ws", "exec", self.name, "--", *words, CODEHUB_TOKEN=self._token)

    @property
    def home(self) -> Path:
        (found,) = (self.stack.data_dir / "homes").glob(f"users/*/workspaces/{self.id}/home/files")
        return found

    async def comes_to(self, **wanted: str) -> None:
        async def there() -> bool:
            seen = await asyncio.to_thread(self.now)
            return all(seen[name] == value for name, value in wanted.items())

        await until(there, f"the workspace has {wanted}")

    async def stays_up_while(
        self, begin: Callable[[], Awaitable[None]], act: Callable[[], Awaitable[None]], ttl_s: float
    ) -> None:
        """Acting for longer than the TTL keeps it RUNNING. A machine that stalled for half of it proves nothing: again."""
        failure: Error | None = None
        for _ in range(5):
            try:
                await begin()
                await act()
                if (await asyncio.to_thread(self.now))["desired_state"] != "RUNNING":
                    continue  # to begin took so long
                began = last = time.monotonic()
                longest = 0.0
                while time.monotonic() < began + 1.25 * ttl_s:
                    await act()
                    longest = max(longest, time.monotonic() - last)
                    last = time.monotonic()
                    await asyncio.sleep(0.5)
            except Error as error:  # it fell asleep, and the page says so instead of being an IDE
                failure = error
                continue
            seen = await asyncio.to_thread(self.now)
            longest = max(longest, time.monotonic() - last)
            if longest < ttl_s / 2:
                assert (seen["phase"], seen["desired_state"]) == ("RUNNING", "RUNNING"), seen
                return
        raise AssertionError("the machine is too slow to tell") from failure


async def arrives(page: Page, selector: str) -> None:
    """The page comes by itself, through a navigation or two."""

    async def shown() -> bool:
        try:
            return await page.locator(selector).first.is_visible()
        except Error:
            return False  # it was just going on

    await until(shown, f"{selector} is there")
