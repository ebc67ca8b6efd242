"""Live pages: two windows, a server that goes away and comes back, a thousand workspaces."""

from __future__ import annotations

from playwright.async_api import BrowserContext, Page, expect

from e2e.pages import card, live, press, sign_in
from testing.dashboard import RUNNING, DashboardServer, Stage


async def test_two_windows_see_each_others_changes(
    dashboard: DashboardServer, page: Page, browser_context: BrowserContext, stage: Stage
) -> None:
    await stage.add("shared", **RUNNING)
    await sign_in(page, dashboard)
    other = await browser_context.new_page()
    await other.goto(f"{dashboard.url}/")
    await live(other)
    await press(page, "Stop shared")
    await expect(card(other, "shared")).to_contain_text("Stopping")
    await press(other, "New workspace")
    await other.get_by_role("dialog").get_by_label("Name").fill("second")
    await other.get_by_role("dialog").get_by_role("button", name="Create").click()
    await expect(card(page, "second")).to_be_visible()
    await stage.change(
        await stage.named("second"), deleted_at=dashboard.clock(), phase="DELETED", desired_state="DELETED"
    )
    await expect(card(page, "second")).to_be_hidden()
    await expect(card(other, "second")).to_be_hidden()


async def test_a_server_restart_is_said_survived_and_nothing_is_missed(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    workspace_id = await stage.add("api", **RUNNING)
    await sign_in(page, dashboard)
    await dashboard.stop()
    await expect(page.get_by_text("CodeHub does not answer.")).to_be_visible()
    await press(page, "Stop api")
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    await stage.change(workspace_id, name="renamed meanwhile")
    await dashboard.start()
    await expect(card(page, "renamed meanwhile")).to_be_visible()
    await expect(page.get_by_text("CodeHub does not answer. What you see may be old")).to_be_hidden()
    # A browser logs every connection that was refused; nothing else may be there.
    assert all("Failed to load resource" in fault or "ERR_" in fault for fault in page_faults), page_faults
    page_faults.clear()
    await press(page, "Stop renamed meanwhile")
    await stage.until(workspace_id, desired_state="STANDBY")


async def test_a_thousand_workspaces_are_shown_searched_and_updated_in_place(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    ids = await stage.add_many([f"workspace {number:04}" for number in range(1_000)])
    await sign_in(page, dashboard)
    # By style, not by role: of a thousand cards a role takes seconds to work out.
    cards = page.locator(".cards > .card")
    await expect(cards).to_have_count(1_000)
    await expect(page.get_by_text("1000 in all")).to_be_visible()
    # Those out of sight are neither laid out nor painted: the page's cost is that of a screenful.
    assert await page.evaluate(
        "[...document.querySelectorAll('.card')].every(card => getComputedStyle(card).contentVisibility === 'auto')"
    )

    # One change touches one card: every other node stays the node it was, and the focus stays where it is.
    await page.locator(f"[data-id='{ids[500]}'] [data-action=start]").focus()
    await page.evaluate("window.before = [...document.querySelectorAll('.cards > .card')]")
    await stage.change(ids[499], **RUNNING)
    await expect(page.locator(f"[data-id='{ids[499]}']")).to_contain_text("Running")
    assert await page.evaluate(
        "[...document.querySelectorAll('.cards > .card')].every((card, index) => card === window.before[index])"
    )
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Start workspace 0500"

    await page.locator("input[type=search]").fill("workspace 099")
    await expect(cards).to_have_count(10)
    await expect(page.get_by_text("10 of 1000")).to_be_visible()
    await page.locator("input[type=search]").fill("")
    await page.get_by_label("Which workspaces").select_option("running")
    await expect(cards).to_have_count(1)
