"""A thousand workspaces on one page: rows as the coordinator would have written them, for so many could not run."""

from __future__ import annotations

from playwright.async_api import Page, expect

from e2e.pages import sign_in
from testing.codehub.dashboard import RUNNING, DashboardServer, Stage


async def test_a_thousand_workspaces_are_shown_searched_and_updated_in_place(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    ids = await stage.add_many([f"workspace {number:04}" for number in range(1_000)])
    await sign_in(page, dashboard)
    # By style, not by role: of a thousand cards a role takes seconds to work out.
    cards = page.locator(".cards > .card:not([hidden])")
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
    assert await page.evaluate("window.before.every((card) => card.isConnected)")
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Start workspace 0500"

    await page.locator("input[type=search]").fill("workspace 099")
    await expect(cards).to_have_count(10)
    await expect(page.get_by_text("10 of 1000")).to_be_visible()
    await page.locator("input[type=search]").fill("")
    await page.get_by_label("Which workspaces").select_option("running")
    await expect(cards).to_have_count(1)
    # What the filter takes away takes the focus nowhere one cannot see.
    await page.locator(f"[data-id='{ids[499]}'] [data-action=stop]").focus()
    await stage.change(ids[499], phase="STANDBY", desired_state="STANDBY")
    await expect(cards).to_have_count(0)
    await expect(page.get_by_label("Which workspaces")).to_be_focused()
