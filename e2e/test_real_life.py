"""A workspace's whole life through the page, as a person would: real coordinator, real proxy, real homes and archives."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from playwright.async_api import Page, expect

from e2e.pages import (
    card,
    create,
    open_workspace,
    press,
    run_inside,
    say_inside,
    sign_in,
    until_is,
)
from testing.codehub.full_stack import Stack


async def restore(page: Page, name: str) -> None:
    """Press Restore, and wait until the card knows: *Open* would otherwise start it a second time, which is refused."""
    await press(page, f"Restore {name}")
    await expect(page.get_by_role("button", name=f"Restore {name}", exact=True)).to_be_hidden()


async def test_a_workspace_is_made_opened_put_away_and_brought_back_with_everything_in_it(
    real: Stack, page: Page
) -> None:
    await sign_in(page, real)
    await create(page, "life", Description="the service", Profile="tiny")
    mine = card(page, "life")
    inside = await open_workspace(page, "life")
    assert "ticket" not in inside.url
    # Its own host by default; addresses of the shared host lead there.
    address = urlsplit(inside.url)
    workspace_id = address.path.split("/")[2]
    assert address.hostname == f"{workspace_id}.localhost"
    for host in ("localhost", "127.0.0.1"):
        await inside.goto(f"http://{host}:{address.port}/w/{workspace_id}/")
        assert inside.url == address.geturl()
    await expect(mine).to_contain_text(re.compile(r"sleeps in \d+ (min|h) unless used"))
    wrote = await run_inside(
        inside, "head -c 20000000 /dev/urandom > data; echo chapter one > note; chmod 640 note; ls"
    )
    assert wrote.split() == ["data", "note"]

    await page.get_by_role("link", name="life", exact=True).click()
    for seen in ("Home: yes", "Archive: no", "Instance: yes", "Healthy: yes"):
        await expect(page.get_by_text(seen)).to_be_visible()
    output = page.get_by_role("log")
    await expect(output).to_contain_text("hello from")
    await say_inside(inside, "and says more")
    await expect(output).to_contain_text("and says more")
    await expect(page.get_by_text(re.compile(r"Uses \d+ % of a core, [\d.]+ MB"))).to_be_visible()

    await press(page, "Stop life")
    await until_is(page, "Asleep")
    await expect(page.get_by_text(re.compile(r"is archived in \d+ (min|h|days) unless used"))).to_be_visible()
    await press(page, "Archive life")
    await until_is(page, "Archived")
    await restore(page, "life")
    back = await open_workspace(page, "life")
    assert await run_inside(back, "cat note; stat -c %a note; stat -c %s data") == "chapter one\n640\n20000000\n"
    await inside.close()
    await back.close()


async def test_a_stopped_workspace_is_duplicated_with_its_files(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, real)
    await create(page, "original")
    inside = await open_workspace(page, "original")
    await run_inside(inside, "echo precious > note")
    await inside.close()
    await page.get_by_role("link", name="original", exact=True).click()
    await expect(page.get_by_role("button", name="Duplicate original", exact=True)).to_be_hidden()
    await press(page, "Stop original")
    await until_is(page, "Asleep")
    await press(page, "Duplicate original")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Name")).to_have_value("original copy")
    await dialog.get_by_role("button", name="Duplicate").click()
    await page.get_by_role("link", name="Workspaces", exact=True).click()
    copy = await open_workspace(page, "original copy")
    # Two commands: one that is asked again, because the waiting page went on meanwhile, gives the same answer.
    assert await run_inside(copy, "cat note") == "precious\n"
    await run_inside(copy, "echo changed > note")
    await copy.close()
    await until_is(card(page, "original"), "Asleep")
    assert (real.home_of("original") / "note").read_text() == "precious\n"


async def test_a_deleted_workspace_comes_back_with_what_was_in_it(
    real: Stack, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, real)
    await create(page, "old name")
    inside = await open_workspace(page, "old name")
    await run_inside(inside, "echo precious > note")
    await inside.close()
    await page.get_by_role("link", name="old name", exact=True).click()
    await press(page, "Edit old name")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("<b>new</b> name")
    await dialog.get_by_label("Memo").fill("line one\nline two")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="<b>new</b> name")).to_be_visible()
    await expect(page.get_by_text("line one")).to_be_visible()

    await press(page, "Delete <b>new</b> name")
    await expect(dialog).to_contain_text("for 24 h an administrator can undelete it")
    await expect(dialog).to_contain_text("It is stopped, its files are archived")
    confirmation = dialog.get_by_role("textbox")
    await confirmation.fill("something else")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Nothing was deleted")
    await until_is(page, "Running")
    await confirmation.fill("<b>new</b> name")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("This workspace was deleted.")).to_be_visible()
    # The page may have been asking for the timeline of what was just deleted.
    page_faults[:] = [fault for fault in page_faults if "404" not in fault]

    await page.get_by_role("link", name="Admin").click()
    await expect(page.get_by_text(" leads.")).to_be_visible()
    await page.get_by_role("link", name="All workspaces").click()
    await page.get_by_label("Show deleted workspaces").check()
    await press(page, "Undelete <b>new</b> name")
    await expect(page.get_by_text("was undeleted; it is archived.")).to_be_visible()
    await page.get_by_role("link", name="Workspaces", exact=True).click()
    await restore(page, "<b>new</b> name")
    back = await open_workspace(page, "<b>new</b> name")
    assert await run_inside(back, "cat note") == "precious\n"
    await back.close()


async def test_a_home_that_vanished_is_said_and_recovered_from_the_archive(real: Stack, page: Page) -> None:
    await sign_in(page, real)
    await create(page, "unlucky")
    inside = await open_workspace(page, "unlucky")
    await run_inside(inside, "echo archived > note")
    await inside.close()
    await press(page, "Archive unlucky")
    mine = card(page, "unlucky")
    await until_is(mine, "Archived")
    await press(page, "Restore unlucky")
    await until_is(mine, "Running")
    await press(page, "Stop unlucky")
    await until_is(mine, "Asleep")
    await asyncio.to_thread(real.lose_home, "unlucky")
    await press(page, "Start unlucky")
    await expect(mine).to_contain_text("Its home is not where it was left.")
    await expect(mine).to_contain_text("Recover it from one of its archives")
    await expect(page.get_by_role("button", name="Try again unlucky")).to_be_hidden()

    await page.get_by_role("link", name="unlucky").click()
    await press(page, "Recover unlucky")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Recover").click()
    await expect(dialog).to_be_hidden()
    back = await open_workspace(page, "unlucky")
    assert await run_inside(back, "cat note") == "archived\n"
    await back.close()


async def test_an_ide_that_cannot_start_is_said_with_its_output_and_tried_again(real: Stack, page: Page) -> None:
    await sign_in(page, real)
    await create(page, "licensed one", Profile="licensed")
    mine = card(page, "licensed one")
    await until_is(mine, "Error")
    await page.get_by_role("link", name="licensed one").click()
    await expect(page.get_by_role("log")).to_contain_text("the licence is missing")
    home = await asyncio.to_thread(real.home_of, "licensed one")
    (home / "licence").write_text("here it is")
    await press(page, "Try again licensed one")
    inside = await open_workspace(page, "licensed one")
    await inside.close()
