"""What a person meets every day in the dashboard: the order of cards, shortcuts, names in use, an expired link, labels."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.async_api import Page, expect

from e2e.pages import card, press, sign_in
from testing.codehub.dashboard import ARCHIVED, RUNNING, DashboardServer, Stage


def on(day: int) -> datetime:
    return datetime(2026, 3, day, tzinfo=UTC)


async def test_running_workspaces_come_first_and_then_the_last_used(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    await stage.add("used last", last_access_at=on(9))
    await stage.add("used long ago", last_access_at=on(2))
    await stage.add("put away", **{**ARCHIVED, "last_access_at": on(5)})
    await stage.add("running, quiet", **{**RUNNING, "last_access_at": on(1)})
    await stage.add("running, in use", **{**RUNNING, "last_access_at": on(3)})
    await sign_in(page, dashboard)
    names = page.get_by_role("listitem").get_by_role("heading")
    await expect(names).to_have_text(["running, in use", "running, quiet", "used last", "put away", "used long ago"])


async def test_slash_searches_and_n_creates_but_not_while_typing(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    await stage.add("notes")
    await stage.add("thesis")
    await sign_in(page, dashboard)
    await expect(card(page, "thesis")).to_be_visible()
    await page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    await expect(search).to_be_focused()
    await page.keyboard.type("no/n")
    await expect(search).to_have_value("no/n")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await search.fill("notes")
    await expect(card(page, "thesis")).to_be_hidden()
    await search.fill("")
    await search.blur()
    await page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New workspace")
    await expect(dialog).to_be_visible()
    # A name in use is refused where it was typed, and what was typed stays.
    await dialog.get_by_label("Name").fill("notes")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("there is already a workspace named 'notes'")
    await dialog.get_by_label("Name").fill("notes-2")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog).to_be_hidden()
    await expect(card(page, "notes-2")).to_be_visible()
    # The browser logs the refusal; nothing else.
    assert [fault for fault in page_faults if "409 (Conflict)" not in fault] == []
    page_faults.clear()


async def test_an_expired_link_says_so_on_a_page_that_leads_to_signing_in(
    dashboard: DashboardServer, page: Page, page_faults: list[str]
) -> None:
    answer = await page.goto(f"{dashboard.url}/login-link?secret={'x' * 43}")
    assert answer is not None
    assert answer.status == 401
    await expect(page.get_by_role("heading", name="This link has expired")).to_be_visible()
    button = page.get_by_role("link", name="Sign in")
    # Styled like the rest: the page's style sheet is there and applies, and its policy lets the icon through.
    assert await button.evaluate("button => getComputedStyle(button).borderRadius") == "8px"
    assert [fault for fault in page_faults if "401 (Unauthorized)" not in fault] == []
    page_faults.clear()
    await button.click()
    await expect(page.get_by_label("User name")).to_be_visible()


async def test_tables_are_refreshed_and_a_disabled_user_cannot_sign_in(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    await sign_in(page, dashboard)
    await page.goto(f"{dashboard.url}/#/admin/workspaces")
    await expect(page.get_by_role("heading", name="All workspaces")).to_be_visible()
    await stage.add("made meanwhile")
    await press(page, "Refresh")
    await expect(page.get_by_role("cell", name="made meanwhile")).to_be_visible()

    await page.get_by_role("link", name="Users").click()
    await press(page, "New user")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("User name").fill("ada")
    await dialog.get_by_label("Password").fill("long enough")
    await dialog.get_by_role("button", name="Create user").click()
    row = page.get_by_role("row").filter(has_text="ada")
    await expect(page.get_by_role("columnheader", name="Can sign in")).to_be_visible()
    await expect(row.get_by_role("cell", name="yes", exact=True)).to_be_visible()
    await press(page, "Disable: ada")
    await expect(row.get_by_role("cell", name="no", exact=True)).to_be_visible()

    await page.goto(f"{dashboard.url}/#/account")
    await expect(page.get_by_label("Current password")).to_be_visible()
