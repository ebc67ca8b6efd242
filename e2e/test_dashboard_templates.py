"""Templates in the dashboard: an administrator writes one with its mistakes shown, people create from it and update."""

from __future__ import annotations

import re
import time

from playwright.async_api import Page, expect

from e2e.pages import card, press, sign_in
from testing.codehub.dashboard import DashboardServer, Stage

WEB = """[templates.web]
description = "The web service"
size = {cpus = 1, memory = "1G"}
env = {NODE = "{parameters.node}"}

[templates.web.parameters.node]
choices = ["20", "22"]
default = "22"

[templates.web.parameters.branch]
pattern = "[a-z]+"

[templates.web.parameters.workers]
type = "number"
min = 1
max = 8
default = 2

[templates.web.parameters.debug]
type = "switch"
default = false
description = "More output"
"""


async def test_a_template_is_edited_with_its_mistakes_and_a_preview_then_used_and_updated(
    dashboard: DashboardServer, page: Page, page_faults: list[str], stage: Stage
) -> None:
    await sign_in(page, dashboard)
    await page.goto(f"{dashboard.url}/#/admin/templates")
    await page.get_by_role("link", name="New template").click()
    text = page.get_by_label("TOML")
    await text.fill(WEB.replace('memory = "1G"', 'memory = "lots"'))
    mistake = page.get_by_role("button", name="Line 3: templates.web.size.memory")
    await expect(mistake).to_be_visible()
    save = page.get_by_role("button", name="Save as a new version")
    await expect(save).to_be_disabled()
    await mistake.click()
    selected = await text.evaluate("node => node.value.slice(node.selectionStart, node.selectionEnd)")
    assert selected == 'size = {cpus = 1, memory = "lots"}'
    await text.fill(WEB)
    await expect(page.get_by_text("No mistakes.")).to_be_visible()
    await expect(page.get_by_text("branch: a value is needed")).to_be_visible()
    # People are asked the same questions; here they fill in the preview.
    await page.get_by_label("branch", exact=True).fill("main")
    await expect(page.get_by_text("CODEHUB_PARAM_BRANCH=main")).to_be_visible()
    await save.click()
    await expect(page.get_by_role("heading", name="Versions")).to_be_visible()

    await page.goto(f"{dashboard.url}/#/")
    await press(page, "Create your first workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("shop")
    await dialog.get_by_label("Template").select_option("web")
    await dialog.get_by_label("node").select_option("20")
    await dialog.get_by_label("branch", exact=True).fill("NOT")
    await dialog.get_by_label("More output").check()
    await dialog.get_by_label("Start it now").uncheck()
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog).to_contain_text("branch: must match [a-z]+")
    page_faults.clear()  # the browser logs the refusal
    await dialog.get_by_label("branch", exact=True).fill("main")
    await dialog.get_by_role("button", name="Create").click()
    mine = card(page, "shop")
    await expect(mine).to_contain_text("web")
    row = await stage.row(await stage.named("shop"))
    assert row["template"]["parameters"] == {"node": "20", "branch": "main", "workers": 2, "debug": True}

    await page.goto(f"{dashboard.url}/#/admin/templates/web")
    await text.fill(WEB.replace('memory = "1G"', 'memory = "2G"'))
    await expect(page.get_by_text("No mistakes.")).to_be_visible()
    await save.click()
    await page.get_by_role("button", name="Version 2").click()
    await expect(page.get_by_label("What the version changed")).to_contain_text('+size = {cpus = 1, memory = "2G"}')
    await page.goto(f"{dashboard.url}/#/")
    await press(page, "Update template shop")
    await expect(dialog).to_contain_text("size: 1 CPU, 1G memory → 1 CPU, 2G memory")
    await dialog.get_by_role("button", name="Update at next start").click()
    await expect(mine.get_by_role("button", name="Update template shop")).to_be_hidden()
    row = await stage.row(await stage.named("shop"))
    assert (row["template"]["version"], row["template_next"]["version"]) == (1, 2)


async def test_a_version_that_was_saved_meanwhile_is_shown_before_it_is_replaced(
    dashboard: DashboardServer, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, dashboard)
    await page.goto(f"{dashboard.url}/#/admin/templates")
    await page.get_by_role("link", name="New template").click()
    await _save(page, WEB)
    await expect(page.get_by_role("heading", name="Versions")).to_be_visible()
    other = await page.context.new_page()
    await other.goto(f"{dashboard.url}/#/admin/templates/web")
    await _save(other, WEB.replace("The web service", "Theirs"))
    await expect(other.get_by_role("button", name="Version 2")).to_be_visible()
    await other.close()

    await _save(page, WEB.replace("The web service", "Mine"))
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("web: the newest version is 2, by admin")
    await expect(dialog).to_contain_text("your text is based on version 1")
    page_faults.clear()  # the browser logs the refusal
    await dialog.get_by_role("button", name="Merge by hand").click()
    await expect(page.get_by_label("What the version changed")).to_contain_text('+description = "Theirs"')
    await expect(page.get_by_label("TOML")).to_have_value(WEB.replace("The web service", "Mine"))
    await page.get_by_role("button", name="Save as a new version").click()
    await expect(page.get_by_role("button", name="Version 3")).to_be_visible()


async def _save(page: Page, source: str) -> None:
    await expect(page.get_by_text("No mistakes.")).to_be_visible()
    await page.get_by_label("TOML").fill(source)
    await page.get_by_role("button", name="Save as a new version").click()


async def test_the_card_says_when_a_schedule_starts_it_and_offers_to_skip_a_slow_step(
    dashboard: DashboardServer, page: Page, page_faults: list[str], stage: Stage
) -> None:
    schedule = {"at": "09:00", "days": list(range(7)), "jitter": 0}
    template = {"name": "web", "version": 1, "profile": "tiny", "image_ref": "tiny", "schedule": schedule}
    await stage.add("asleep", template=template)
    step = {
        "id": "dotfiles-1",
        "title": "Dotfiles",
        "state": "running",
        "progress": {"step": "running install.sh"},
        "started_at": time.time() - 60,
        "stops_at": time.time() + 3600,
    }
    setup = {"steps": [step], "running": True}
    await stage.add("slow", phase="RUNNING", desired_state="RUNNING", setup=setup)
    await sign_in(page, dashboard)
    await expect(card(page, "asleep")).to_contain_text(re.compile(r"Starts \w+day \d+ \w+ 09:00 UTC"))
    slow = card(page, "slow")
    await expect(slow).to_contain_text("Dotfiles: running install.sh. It is stopped at")
    await expect(slow.get_by_role("button", name="Skip this step")).to_be_visible()
    await stage.change(await stage.named("slow"), setup={"steps": [{**step, "state": "skipped"}], "running": False})
    await expect(slow.get_by_role("button", name="Skip this step")).to_be_hidden()
