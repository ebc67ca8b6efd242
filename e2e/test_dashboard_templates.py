"""Templates in the dashboard: an administrator writes one with its mistakes shown, people create from it and update."""

from __future__ import annotations

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
