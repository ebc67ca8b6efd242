"""The web terminal in Chromium: xterm.js on a real workspace, through reloads, floods, other viewers and restarts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, Page, expect

from e2e.pages import card, create, sign_in, until_is
from e2e.stacks import browser_stack
from testing.browser import watch_faults
from testing.codehub.full_stack import Stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Its own, because its parts are restarted."""
    with browser_stack() as made:
        yield made


async def terminal(page: Page, stack: Stack, name: str) -> Page:
    """The terminal of a new workspace, in a tab of its own."""
    await sign_in(page, stack)
    await create(page, name)
    await until_is(card(page, name), "Running")
    async with page.context.expect_page() as opened:
        await page.get_by_role("link", name=f"Terminal of {name} in a new tab").click()
    shown = await opened.value
    await connected(shown)
    return shown


async def connected(page: Page) -> None:
    await expect(page.locator("body[data-state=connected]")).to_be_attached()


async def type_line(page: Page, text: str) -> None:
    await page.locator(".xterm-helper-textarea").focus()
    await page.keyboard.insert_text(text)
    await page.keyboard.press("Enter")


def rows(page: Page) -> Locator:
    return page.locator(".xterm-rows")


async def text_of(page: Page) -> list[str]:
    lines = await page.locator(".xterm-rows > div").all_inner_texts()
    return [line.replace("\u00a0", " ").rstrip() for line in lines]


async def size_of(page: Page, mark: str) -> tuple[int, int]:
    """The size that the program in the terminal sees."""
    await type_line(page, f"clear; echo {mark}: $(stty size) end")
    pattern = re.compile(rf"{mark}: (\d+) (\d+) end")
    await expect(rows(page)).to_contain_text(pattern)
    found = pattern.search("\n".join(await text_of(page)))
    assert found is not None
    return int(found[2]), int(found[1])


async def resized(page: Page, mark: str, before: tuple[int, int]) -> tuple[int, int]:
    """Wait until the program has another size than before: the page measures itself some time after the window changes."""
    async with asyncio.timeout(90):
        while (now := await size_of(page, mark)) == before:
            await asyncio.sleep(0.1)
    return now


@pytest.mark.needs("vim", "htop")
async def test_a_terminal_draws_colours_wide_characters_and_full_screen_programs(stack: Stack, page: Page) -> None:
    shown = await terminal(page, stack, "draws")
    faults: list[str] = []
    watch_faults(shown, faults)
    await type_line(shown, "bash --norc")
    await type_line(shown, "PS1='$ '; clear; printf 'gr\\303\\274n 漢字 \\033[31mred\\033[0m 👩 e\\314\\201\\n'")
    await expect(rows(shown)).to_contain_text("grün 漢字 red 👩 e\u0301")
    await type_line(shown, "vim -u NONE -N note.txt")
    await expect(rows(shown)).to_contain_text("note.txt")
    await shown.keyboard.type("ihello from vim")
    await expect(rows(shown)).to_contain_text("hello from vim")
    await shown.keyboard.press("Escape")
    await type_line(shown, ":wq")
    await type_line(shown, "clear; cat note.txt")
    await expect(rows(shown)).to_contain_text("hello from vim")
    await type_line(shown, "TERM=xterm-256color htop -d 50")
    await expect(rows(shown)).to_contain_text("Load average")
    await shown.keyboard.press("q")
    await expect(rows(shown)).to_contain_text("$")
    assert not faults, faults
    await shown.close()


async def test_a_reload_shows_the_exact_screen_again(stack: Stack, page: Page) -> None:
    shown = await terminal(page, stack, "reloaded")
    await type_line(shown, "bash --norc")
    # The line as typed does not contain what it prints, and the next prompt is the last thing that changes.
    await type_line(shown, "PS1='$ '; clear; seq 1 200; printf '\\033[1;32md%s 漢字\\033[0m\\n' one")
    drawn = re.compile(r"done 漢字\s*\$")
    await expect(rows(shown)).to_contain_text(drawn)
    before = await text_of(shown)
    await shown.reload()
    await connected(shown)
    await expect(rows(shown)).to_contain_text(drawn)
    assert await text_of(shown) == before
    # What scrolled out is there too.
    await type_line(shown, "x=still; echo $x here")
    await expect(rows(shown)).to_contain_text("still here")
    await shown.close()


async def test_two_viewers_share_a_terminal_and_the_one_that_is_resized_decides(stack: Stack, page: Page) -> None:
    one = await terminal(page, stack, "shared")
    await type_line(one, "bash --norc")
    two = await page.context.new_page()
    await two.goto(one.url)
    await connected(two)
    await type_line(one, "echo typed-in-$((1 + 1))-places")
    await expect(rows(two)).to_contain_text("typed-in-2-places")
    before = await size_of(two, "before")
    await two.set_viewport_size({"width": 700, "height": 500})
    smaller = await resized(two, "small", before)
    await expect(rows(one)).to_contain_text(f"small: {smaller[1]} {smaller[0]} end")
    assert await text_of(one) == await text_of(two)
    await one.set_viewport_size({"width": 1000, "height": 700})
    await one.bring_to_front()
    larger = await resized(one, "large", smaller)
    assert larger[0] > smaller[0]
    assert larger[1] > smaller[1]
    await one.close()
    await two.close()


async def test_a_flood_of_fifty_megabytes_is_survived_and_interrupted_keys_arrive(stack: Stack, page: Page) -> None:
    shown = await terminal(page, stack, "flood")
    await type_line(shown, "bash --norc")
    await type_line(
        shown, "PS1='$ '; head -c 37500000 /dev/urandom | base64 -w 100; clear; echo flood-is-$((2 * 2))-over"
    )
    await expect(rows(shown)).to_contain_text("flood-is-4-over")
    await type_line(shown, "cat /dev/urandom | base64")
    await expect(rows(shown)).not_to_contain_text("flood-is-4-over")
    await shown.locator(".xterm-helper-textarea").focus()
    await shown.keyboard.press("Control+c")
    await type_line(shown, "clear; echo inter-$((3 * 3))-rupted")
    await expect(rows(shown)).to_contain_text("inter-9-rupted")
    await shown.close()


async def test_a_terminal_goes_on_after_the_api_and_the_proxy_were_killed(
    stack: Stack, page: Page, page_faults: list[str]
) -> None:
    shown = await terminal(page, stack, "restarted")
    await type_line(shown, "bash --norc")
    await type_line(shown, "kept=value; (sleep 2; echo said-mean$((10 - 10))while) & clear")
    for part in ("api", "proxy"):
        for process in stack.processes(part):
            process.kill()
    await expect(shown.locator("body[data-state=away]")).to_be_attached()
    await connected(shown)
    await expect(rows(shown)).to_contain_text("said-mean0while")
    await type_line(shown, "echo still-$kept")
    await expect(rows(shown)).to_contain_text("still-value")
    page_faults.clear()  # the dashboard's own stream was cut, which Chromium reports
    await shown.close()


async def test_terminals_are_opened_closed_and_ended_with_their_exit_code(stack: Stack, page: Page) -> None:
    shown = await terminal(page, stack, "several")
    tabs = shown.get_by_role("navigation", name="Terminals").get_by_role("button", name=re.compile(r"^\d: "))
    await expect(tabs).to_have_count(1)
    fresh = shown.get_by_role("button", name="New terminal")
    await shown.locator(".xterm-helper-textarea").focus()
    await shown.keyboard.press("Control+F6")  # Tab is for the program
    await expect(fresh).to_be_focused()
    await fresh.click()
    await expect(tabs).to_have_count(2)
    await connected(shown)
    await type_line(shown, "exit 3")
    await expect(shown.get_by_role("alert")).to_contain_text("exit code 3")
    await expect(tabs).to_have_count(1)
    await tabs.first.click()
    await connected(shown)
    await shown.get_by_role("button", name=re.compile("^Close terminal 1")).click()
    await expect(shown.get_by_role("alert")).to_contain_text("No terminal is open")
    await shown.close()


async def test_a_reload_does_not_wake_a_workspace_but_the_button_does(stack: Stack, page: Page) -> None:
    shown = await terminal(page, stack, "sleeper")
    await page.get_by_role("button", name="Stop sleeper").click()
    await until_is(card(page, "sleeper"), "Asleep")
    await expect(shown.get_by_role("alert")).to_contain_text("asleep")
    await shown.reload()
    await expect(shown.get_by_role("alert")).to_contain_text("asleep")
    await until_is(card(page, "sleeper"), "Asleep")
    await shown.get_by_role("button", name="Wake it and open a terminal").click()
    await connected(shown)
    await until_is(card(page, "sleeper"), "Running")
    await shown.close()


async def test_signing_out_closes_the_terminal(stack: Stack, page: Page, page_faults: list[str]) -> None:
    shown = await terminal(page, stack, "signed out")
    await page.get_by_role("button", name="Sign out").click()
    await expect(shown.get_by_role("alert")).to_contain_text("session has ended")
    page_faults.clear()
    await shown.close()


PASTE = """(length) => {
  const data = new DataTransfer();
  data.setData("text/plain", "pasted ".padEnd(99, "x").concat("\\n").repeat(length / 100));
  const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
  document.querySelector(".xterm-helper-textarea").dispatchEvent(event);
}"""


async def test_a_large_paste_arrives_and_one_that_is_too_large_is_refused_as_a_whole(
    stack: Stack, page: Page
) -> None:
    shown = await terminal(page, stack, "pasted")
    await type_line(shown, "bash --norc")
    await type_line(
        shown, "PS1='$ '; clear; stty -echo; echo rea-$((1 + 1))-dy; cat > pasted; stty echo; wc -c pasted"
    )
    await expect(rows(shown)).to_contain_text("rea-2-dy")
    await shown.evaluate(PASTE, 1_000_000)
    # What is typed afterwards comes after it.
    await shown.keyboard.press("Control+d")
    await expect(rows(shown)).to_contain_text("1000000 pasted")
    await shown.evaluate(PASTE, 2_000_000)
    await expect(shown.get_by_role("alert")).to_contain_text("A megabyte at most")
    await shown.get_by_role("button", name="OK").click()
    await expect(shown.get_by_role("alert")).to_be_hidden()
    await connected(shown)
    await type_line(shown, "clear; echo still-$((3 * 3))-here")
    await expect(rows(shown)).to_contain_text("still-9-here")
    await shown.close()
