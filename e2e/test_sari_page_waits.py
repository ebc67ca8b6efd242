"""sari's page while things take their time: an index that is not ready, a daemon that is being replaced, long answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from testing.sari.held import HeldRipgrep, held_sari
from testing.sari.home import SariHome, sari_home
from testing.sari.processes import wait_until
from testing.sari.shim import Shim


async def open_page(page: Page, home: SariHome) -> None:
    done = await asyncio.to_thread(home.sari, "web", "--no-open")
    assert done.returncode == 0, done.stderr
    await page.goto(done.stdout.strip())


def without_sign_in(faults: list[str]) -> None:
    """The browser itself notes that the first answer asked to sign in."""
    faults[:] = [fault for fault in faults if "401" not in fault]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as made:
        yield made


@pytest.fixture
def held(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HeldRipgrep]:
    made = held_sari(tmp_path / "held", request.param)
    yield made
    made.release()


@pytest.mark.parametrize("held", ["--files"], indirect=True)
async def test_the_page_opens_and_searches_before_the_index_is_ready_and_says_when_it_is(
    page: Page, home: SariHome, held: HeldRipgrep, page_faults: list[str]
) -> None:
    """The first listing of the files is held up: the index knows nothing at all."""
    home.command = held.command
    home.write("fruit.txt", "a kumquat\n")
    await open_page(page, home)
    await expect(page.locator("#index-state")).to_contain_text("scanning")
    await expect(page.get_by_role("progressbar", name="Indexing")).to_be_visible()
    await page.get_by_role("searchbox").fill("kumquat")
    await expect(page.locator("#results mark")).to_have_text(["kumquat"])
    await page.get_by_role("button", name="Status").click()
    await expect(page.locator("#index-table")).to_contain_text("scanning")
    held.release()
    await expect(page.locator("#index-table")).to_contain_text("ready · 1 files")
    await expect(page.get_by_role("progressbar", name="Indexing")).to_be_hidden()
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.locator("#results mark")).to_have_text(["kumquat"])
    without_sign_in(page_faults)


@pytest.mark.parametrize("held", ["molasses"], indirect=True)
async def test_every_daemon_is_shown_while_one_replaces_another(
    page: Page, home: SariHome, held: HeldRipgrep, page_faults: list[str]
) -> None:
    """The old one finishes a call that takes long, so both are there."""
    home.command = held.command
    home.write("a.txt", "molasses\n")
    client = Shim(home.environment, home.workspace, sari=held.command)
    try:
        await asyncio.to_thread(client.initialize)
        client.ask_tool("search", {"query": "molasses"})
        await asyncio.to_thread(wait_until, lambda: held.waiting, "the search runs")
        before = (await asyncio.to_thread(home.info))["pid"]
        assert (await asyncio.to_thread(home.sari, "daemon", "restart")).returncode == 0
        await open_page(page, home)
        await page.get_by_role("button", name="Status").click()
        rows = page.locator("#daemon-table tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.filter(has_text="being replaced")).to_contain_text(str(before))
        await expect(rows.filter(has_text="serving")).to_contain_text("HTTP")
        held.release()
        await expect(rows).to_have_count(1)
        await expect(rows).not_to_contain_text(str(before))
    finally:
        held.release()
        client.kill()
    without_sign_in(page_faults)


async def test_a_long_answer_is_shown_page_by_page_and_long_lines_from_their_match(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    home.write("many.txt", "".join(f"{'. ' * 200}needle number {number}\n" for number in range(900)))
    await open_page(page, home)
    await page.get_by_role("searchbox").fill("needle")
    await expect(page.locator("#summary")).to_contain_text("900 matches · the first")
    first = await page.locator("#results .hit").count()
    assert 0 < first < 900
    await expect(page.locator("#results mark").first).to_be_in_viewport()
    await page.get_by_role("button", name="Show more").click()
    await expect(page.locator("#results .hit", has_text=f"needle number {first}")).to_be_visible()
    while await page.get_by_role("button", name="Show more").count():
        shown = await page.locator("#results .hit").count()
        await page.get_by_role("button", name="Show more").click()
        await expect(page.locator("#results .hit").nth(shown)).to_be_attached()
    await expect(page.locator("#results .hit")).to_have_count(900)
    without_sign_in(page_faults)
