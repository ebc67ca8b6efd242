"""Moments of a workspace that a whole CodeHub passes too quickly to be looked at, or that need a registry to fail.

What a person does from beginning to end, with everything real behind the page, is in test_real_life and test_real_live.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from playwright.async_api import Page, expect

from e2e.pages import card, press, sign_in
from testing.codehub.dashboard import ARCHIVED, ASLEEP, RUNNING, DashboardServer, Stage


async def test_a_workspace_is_created_with_a_profile_and_shown_as_it_comes_up(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    await sign_in(page, dashboard)
    await press(page, "Create your first workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("api")
    await dialog.get_by_label("Description").fill("the service")
    await dialog.get_by_label("Profile").select_option("jupyterlab")
    await dialog.get_by_role("button", name="Create").click()
    mine = card(page, "api")
    await expect(mine).to_contain_text("about to start")
    workspace_id = await stage.named("api")
    row = await stage.row(workspace_id)
    assert (row["image_ref"], row["desired_state"], row["description"]) == ("jupyterlab", "RUNNING", "the service")

    await stage.change(
        workspace_id,
        operation="STARTING",
        progress={"step": "install code-server: editor", "done": 2, "total": 5, "unit": "steps"},
    )
    await expect(mine).to_contain_text("Starting installing code-server (editor), step 3 of 5")
    await expect(mine.get_by_role("progressbar")).to_have_js_property("value", 40)
    # A single step has no middle: the bar says that something goes on, not how far.
    await stage.change(workspace_id, progress={"step": "start", "done": 0, "total": 1, "unit": "steps"})
    await expect(mine).to_contain_text("Starting waiting for the IDE to answer")
    await expect(mine.get_by_role("progressbar")).not_to_have_attribute("value", "0")
    await stage.change(workspace_id, **RUNNING, last_access_at=dashboard.clock(), phase_changed_at=dashboard.clock())
    await expect(mine).to_contain_text(re.compile(r"sleeps in \d+ (min|h) unless used"))
    opener = mine.get_by_role("link", name="Open api in a new tab")
    await expect(opener).to_have_attribute("href", f"http://localhost:8001/w/{workspace_id}/")
    await expect(opener).to_have_attribute("rel", "noopener")

    await press(page, "New workspace")
    await dialog.get_by_label("Name").fill("later")
    await dialog.get_by_label("Start it now").uncheck()
    await dialog.get_by_role("button", name="Create").click()
    await expect(card(page, "later")).to_contain_text("Not started")
    assert (await stage.row(await stage.named("later")))["desired_state"] == "ARCHIVED"


async def test_stop_archive_restore_and_changing_ones_mind(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    workspace_id = await stage.add("api", **RUNNING)
    await sign_in(page, dashboard)
    await press(page, "Stop api")
    await stage.until(workspace_id, desired_state="STANDBY")
    await press(page, "Keep running api")
    await stage.until(workspace_id, desired_state="RUNNING")
    await press(page, "Stop api")
    await stage.until(workspace_id, desired_state="STANDBY")
    await stage.change(workspace_id, **ASLEEP)
    mine = card(page, "api")
    await expect(mine).to_contain_text("Asleep")
    await press(page, "Archive api")
    await stage.until(workspace_id, desired_state="ARCHIVED")
    progress = {"step": "archive", "done": 410_000_000, "total": 660_000_000, "unit": "bytes"}
    await stage.change(workspace_id, operation="ARCHIVING", progress=progress)
    await expect(mine).to_contain_text("Archiving 62 %, 410 MB of 660 MB")
    await stage.change(workspace_id, progress={**progress, "step": "verify"})
    await expect(mine).to_contain_text("Archiving verifying what was written, 62 %")
    await stage.change(workspace_id, **ARCHIVED)
    await press(page, "Restore api")
    await stage.until(workspace_id, desired_state="RUNNING")
    await press(page, "Cancel start api")
    await stage.until(workspace_id, desired_state="ARCHIVED")
    await stage.change(workspace_id, desired_state="RUNNING", operation="RESTORING", op_started_at=datetime.now(UTC))
    await press(page, "Cancel restoring api")
    await stage.until(workspace_id, desired_state="ARCHIVED")


async def test_an_error_says_what_to_do_and_is_recovered_from_the_page(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    error: dict[str, Any] = {
        "phase": "ERROR",
        "desired_state": "RUNNING",
        "error_reason": "ImagePullFailed",
        "error_count": 1,
    }
    broken = await stage.add("broken", **error)
    lost = await stage.add("lost", **{**error, "error_reason": "DataLost"})
    await sign_in(page, dashboard)
    await expect(card(page, "broken")).to_contain_text(
        "Check the image's name and the registry, then start it again. codehub ws start broken"
    )
    await expect(card(page, "lost")).to_contain_text("Recover it from one of its archives")
    await expect(page.get_by_role("button", name="Try again lost")).to_be_hidden()

    await press(page, "Try again broken")
    await stage.until(broken, error_reason=None)
    await stage.change(broken, **RUNNING)
    await expect(card(page, "broken")).to_contain_text("Running")

    await page.get_by_role("link", name="lost").click()
    await press(page, "Recover lost")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Restore", exact=True).select_option(label="An empty home (its files are not restored)")
    await dialog.get_by_role("button", name="Recover").click()
    await expect(dialog).to_be_hidden()
    await stage.until(lost, error_reason=None)


async def test_an_action_that_is_refused_says_why_and_stays_said(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    await dashboard.stop()
    dashboard.max_running = 1
    await dashboard.start()
    await stage.add("first", **RUNNING)
    second = await stage.add("second")
    await sign_in(page, dashboard)
    await press(page, "Start second")
    refusal = page.get_by_role("alert")
    await expect(refusal).to_contain_text("Start: second: you have 1 running workspace")
    page_faults.clear()
    assert (await stage.row(second))["desired_state"] == "STANDBY"
    await press(page, "Dismiss this message")
    await expect(refusal).to_be_hidden()


async def test_a_link_from_a_workspaces_page_asks_before_it_acts_and_only_once(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    workspace_id = await stage.add("api", **ARCHIVED)
    await sign_in(page, dashboard)
    address = f"{dashboard.url}/#/workspaces/{workspace_id}?action=restore"
    await page.goto(address)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Restore api from its archive and start it?")
    await dialog.get_by_role("button", name="Cancel").click()
    assert (await stage.row(workspace_id))["desired_state"] == "ARCHIVED"
    await page.goto(address)
    await dialog.get_by_role("button", name="Restore").click()
    await stage.until(workspace_id, desired_state="RUNNING")
    await page.reload()
    await expect(page.get_by_role("heading", name="api")).to_be_visible()
    await expect(dialog).to_be_hidden()


async def test_a_card_shows_the_size_on_disk_and_warns_when_it_is_too_large(
    dashboard: DashboardServer, page: Page, stage: Stage
) -> None:
    small = {
        "name": "web",
        "version": 1,
        "image_ref": "code-server",
        "profile": "code-server",
        "size": {"disk_bytes": 10**9},
    }
    workspace_id = await stage.add("api", **RUNNING, home_ctx={"incarnation": "inc-1"}, template=small)
    await sign_in(page, dashboard)
    mine = card(page, "api")
    await expect(mine).to_contain_text("Running")
    await expect(mine.locator(".disk")).to_be_hidden()
    await stage.change(workspace_id, disk_bytes=600_000_000)
    await expect(mine).to_contain_text("600 MB of 1.0 GB on disk")
    await expect(mine.locator(".warning")).to_be_hidden()
    await stage.change(workspace_id, disk_bytes=1_200_000_000)
    await expect(mine.locator(".warning")).to_contain_text("Its files use 1.2 GB, more than its disk size of 1.0 GB.")
    await mine.get_by_role("link", name="api", exact=True).click()
    await expect(page.get_by_text("1.2 GB of 1.0 GB on disk")).to_be_visible()
    await expect(page.locator(".warning:visible")).to_contain_text("more than its disk size")
