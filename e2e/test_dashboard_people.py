"""Everybody can use it: a screen reader's rules on a phone and a desk, dark and light; accounts and admins."""

from __future__ import annotations

import re

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from codehub.adapters.postgres.control_store import PostgresControlStore
from e2e.pages import card, press, sign_in
from testing.browser import close_context, watch_faults, with_long_timeouts
from testing.codehub.dashboard import ADMIN, ARCHIVED, PASSWORD, RUNNING, DashboardServer, Stage

# Where an admin can go, and what is there once it has loaded.
PAGES = {"account": "this one", "admin": "No coordinator leads", "admin/workspaces": "busy", "admin/users": "you"}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_no_page_breaks_a_rule_of_accessibility(
    dashboard: DashboardServer, browser: Browser, stage: Stage, scheme: str, width: int
) -> None:
    context = with_long_timeouts(
        await browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
            # The page's own policy keeps axe's script out; it is off for this look only.
            bypass_csp=True,
        )
    )
    page = await context.new_page()
    faults: list[str] = []
    watch_faults(page, faults)
    workspace_id = await stage.add("api", **RUNNING, memo="where I was")
    await stage.add("broken", phase="ERROR", desired_state="RUNNING", error_reason="RetryExceeded", error_count=3)
    progress = {"step": "unpacking", "done": 62, "total": 100, "unit": "bytes"}
    await stage.add(
        "busy", **{**ARCHIVED, "desired_state": "RUNNING", "operation": "RESTORING", "progress": progress}
    )
    await stage.tell(workspace_id, "created", "created")
    await page.goto(f"{dashboard.url}/")
    await expect(page.get_by_label("User name")).to_be_visible()
    await _no_violations(page, "signing in")
    await sign_in(page, dashboard)
    await expect(card(page, "busy")).to_be_visible()
    await _no_violations(page, "workspaces")
    await press(page, "New workspace")
    await _no_violations(page, "creating")
    await page.keyboard.press("Escape")
    for where, text in {**PAGES, f"workspaces/{workspace_id}": "created"}.items():
        await page.goto(f"{dashboard.url}/#/{where}")
        await expect(page.get_by_text(text, exact=False).first).to_be_visible()
        # The colours and the widths are what differs; the rest needs one look only.
        if scheme == "light" or where not in PAGES:
            await _no_violations(page, where)
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, f"{where} is {wide} pixels wider than the screen"
    assert not faults
    await close_context(context)


async def _no_violations(page: Page, where: str) -> None:
    found = await Axe().run(page)
    assert found.violations_count == 0, f"{where}: {found.generate_report()}"


async def test_tokens_sessions_and_the_password_on_the_account_page(
    dashboard: DashboardServer, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, dashboard)
    await page.get_by_role("link", name="Account").click()
    await expect(page.get_by_text("this one")).to_be_visible()
    await press(page, "New token")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("laptop")
    await dialog.get_by_label("Days until it expires").fill("30")
    await dialog.get_by_role("button", name="Create token").click()
    await expect(dialog.get_by_label("Token", exact=True)).to_have_value(re.compile("^cht_"))
    await dialog.get_by_role("button", name="I have copied it").click()
    await press(page, "Revoke laptop")
    await dialog.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_text("No tokens.")).to_be_visible()

    await page.get_by_label("Current password").fill("not this")
    await page.get_by_label("New password").fill("a new password")
    await press(page, "Change password")
    await expect(page.get_by_role("alert")).to_contain_text("the current password is wrong")
    page_faults.clear()
    await page.get_by_label("Current password").fill(PASSWORD)
    await press(page, "Change password")
    await expect(page.get_by_text("Your password was changed.")).to_be_visible()


async def test_an_admin_manages_users_undeletes_and_sees_the_coordinator(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    await stage.add("gone", phase="DELETED", desired_state="DELETED", deleted_at=dashboard.clock())
    await sign_in(page, dashboard)
    await page.get_by_role("link", name="Admin").click()
    await expect(page.get_by_text("No coordinator leads")).to_be_visible()
    store = PostgresControlStore(dashboard.database)
    await store.note_refusal("node-b", "its homes are elsewhere")
    await store.note_components(0, {"ttl_runner": {"last_tick_at": None, "last_error": "Redis is away"}})
    await page.reload()
    await expect(page.get_by_role("row", name="ttl_runner")).to_contain_text("Redis is away")
    refusals = page.get_by_label("Coordinators that refuse to lead")
    await expect(refusals).to_have_text("node-b refuses to lead: its homes are elsewhere.")
    await page.get_by_role("link", name="All workspaces").click()
    await expect(page.locator("#leader")).to_contain_text("node-b refuses to lead: its homes are elsewhere.")
    await page.get_by_label("Show deleted workspaces").check()
    await press(page, "Undelete gone")
    await expect(page.get_by_text("gone was undeleted; it is archived.")).to_be_visible()

    await page.get_by_role("link", name="Users").click()
    await press(page, "New user")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("User name").fill("ada")
    await dialog.get_by_label("Password").fill("short")
    await dialog.get_by_role("button", name="Create user").click()
    await dialog.get_by_label("Password").fill("long enough")
    await dialog.get_by_role("button", name="Create user").click()
    await press(page, "Disable: ada")
    await press(page, "Enable: ada")
    await press(page, "Make admin: ada")
    await expect(page.get_by_role("button", name="Make user: ada")).to_be_visible()
    await press(page, "New password for ada")
    await dialog.get_by_label("Password").fill("longer than before")
    await dialog.get_by_role("button", name="Set password").click()
    await expect(dialog).to_be_hidden()
    await press(page, "Delete ada")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("ada", exact=True)).to_be_hidden()


async def test_who_is_no_admin_sees_their_own_things_and_whom_to_ask(
    dashboard: DashboardServer, page: Page, stage: Stage, page_faults: list[str]
) -> None:
    async with httpx.AsyncClient(base_url=f"{dashboard.url}/api/v1/") as client:
        key = (await client.post("login", json={"username": ADMIN, "password": PASSWORD})).json()["session_key"]
        client.headers["X-CodeHub-Session-Key"] = key
        await client.post("users", json={"username": "ada", "password": "long enough"})
    theirs = await stage.add("of the admin")
    await stage.add(
        "lost", owner="ada", phase="ERROR", desired_state="RUNNING", error_reason="DataLost", error_count=1
    )
    await sign_in(page, dashboard, "ada", "long enough")
    await expect(card(page, "lost")).to_contain_text(
        "Ask an administrator to recover it from one of its archives, or delete it."
    )
    await expect(page.get_by_role("button", name="Recover lost")).to_be_hidden()
    await expect(page.get_by_text("1 in all")).to_be_visible()
    await expect(page.get_by_role("link", name="Admin")).to_be_hidden()
    await page.goto(f"{dashboard.url}/#/workspaces/{theirs}")
    await expect(page.get_by_role("alert")).to_contain_text("this workspace belongs to someone else")
    page_faults[:] = [fault for fault in page_faults if "403" not in fault]
