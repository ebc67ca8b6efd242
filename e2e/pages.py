"""What a person does on the dashboard's pages, in a person's words."""

from __future__ import annotations

import asyncio
from typing import Protocol

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Locator, Page, expect

from testing.browser import TIMEOUT_MS
from testing.codehub.dashboard import ADMIN, PASSWORD

# Playwright's own five seconds are for quiet machines.
expect.set_options(timeout=TIMEOUT_MS)


class Served(Protocol):
    """Whatever serves the dashboard."""

    @property
    def url(self) -> str: ...


async def sign_in(page: Page, server: Served, username: str = ADMIN, password: str = PASSWORD) -> None:
    await page.goto(f"{server.url}/")
    await submit_credentials(page, username, password)
    await expect(page.get_by_role("heading", name="Workspaces", exact=True)).to_be_visible()
    await live(page)


async def create(page: Page, name: str, **chosen: str) -> None:
    """By the dialog; `chosen` are more of its fields by their label."""
    await press(page, "New workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(name)
    for label, value in chosen.items():
        input_ = dialog.get_by_label(label)
        await (input_.select_option(value) if label == "Profile" else input_.fill(value))
    await dialog.get_by_role("button", name="Create").click()
    await expect(card(page, name)).to_be_visible()


async def open_workspace(page: Page, name: str) -> Page:
    """Press Open and be in the workspace: another tab, on the workspaces' own address, by way of the hand-over."""
    opener = page.get_by_role("link", name=f"Open {name} in a new tab")
    await expect(opener).to_be_visible()
    address = await opener.get_attribute("href")
    async with page.context.expect_page() as opened:
        await opener.click()
    inside = await opened.value
    # An IDE may add to its address.
    await inside.wait_for_url(lambda url: bool(address) and url.startswith(str(address)))
    return inside


async def run_inside(inside: Page, command: str) -> str:
    """What the tiny IDE's terminal answers to a command, asked from the workspace's own page."""
    return await _post(inside, "run", command)


async def say_inside(inside: Page, text: str) -> None:
    """Let the tiny IDE print something, as an IDE does."""
    await _post(inside, "say", text)


async def _post(inside: Page, path: str, body: str) -> str:
    """From the workspace's page, or from the one that waits for it: then until the workspace is up."""
    script = """async ([path, body]) => {
      const response = await fetch(path, {method: "POST", body});
      return response.status === 503 ? null : response.text();
    }"""
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while (answer := await _evaluated(inside, script, [path, body])) is None:
            await asyncio.sleep(0.2)
    return answer


async def _evaluated(inside: Page, script: str, argument: list[str]) -> str | None:
    try:
        answer = await inside.evaluate(script, argument)
    except PlaywrightError:  # the page that waits went on to the workspace meanwhile
        return None
    return None if answer is None else str(answer)


async def submit_credentials(page: Page, username: str = ADMIN, password: str = PASSWORD) -> None:
    await page.get_by_label("User name").fill(username)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


async def live(page: Page) -> None:
    """The stream is open and its first snapshot is shown."""
    await expect(page.locator("html[data-live=on]")).to_be_attached()


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem").filter(has=page.get_by_role("link", name=name, exact=True))


async def until_is(where: Page | Locator, state: str) -> None:
    """A card, or the page of the only workspace on it, says this state."""
    await expect(where.locator(".status").get_by_text(state, exact=True)).to_be_visible()


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()
