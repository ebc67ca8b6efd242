"""Texts that a workspace or another user chooses, on every page of the dashboard in Chromium: shown, never executed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from e2e.pages import live, sign_in
from testing.codehub.doors import Doors, open_doors
from testing.codehub.full_stack import Stack

pytestmark = pytest.mark.full_chromium

MARK = "<img src=x onerror=window.pwned=1>"
BREAK_OUT = f"\"'></script></textarea>{MARK}<script>window.pwned=1</script>{{{{7*7}}}}${{7*7}}"
# Leaves a name in the table of processes and of ports.
LISTEN = """import ctypes, socket, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[2].encode()[:15], 0, 0, 0)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(3600)
"""
PAGES = {
    "/": "onerror",
    "/workspaces/{id}": "onerror",
    "/workspaces/{id}/files": "onerror",
    "/workspaces/{id}/ports": "Open 4711",
    "/workspaces/{id}/processes": "onerror",
    "/workspaces/{id}/ssh": None,
    "/workspaces/{id}/terminal": None,
    "/account": "onerror",
    "/admin": None,
    "/admin/workspaces": "onerror",
    "/admin/users": None,
    "/admin/audit": "onerror",
    "/admin/templates": "hostile",
    "/admin/templates/hostile": "onerror",
    "/new?repo=https://git.example.org/%22%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E": None,
}


def prepare(doors: Doors) -> None:
    """Put the text wherever somebody other than the viewer can."""
    with doors.stack.client() as admin:
        path = f"/api/v1/workspaces/{doors.workspace_id}"
        for field in ("name", "description", "memo"):
            # A rule for names may refuse it; then it cannot be shown either.
            answer = admin.patch(path, json={field: BREAK_OUT[:120]})
            assert answer.status_code in (200, 400), answer.text
        assert admin.post("/api/v1/tokens", json={"name": BREAK_OUT[:100]}).status_code == 201
        template = (
            "[templates.hostile]\n"
            f"description = {json.dumps(BREAK_OUT)}\n"
            f"[templates.hostile.parameters.size]\ndescription = {json.dumps(MARK)}\ndefault = {json.dumps(MARK)}\n"
        )
        pushed = admin.post("/api/v1/templates", json={"source": template})
        assert pushed.status_code == 201, pushed.text
        for command in (["sh", "-c", f"exit 3 # {BREAK_OUT}"], ["python3", "-c", LISTEN, "4711", MARK]):
            assert admin.post(f"{path}/processes", json={"command": command}).status_code == 201
    names = [MARK.replace("/", ""), "javascript:window.pwned=1", "\u202egnp.exe"]
    doors.sh("mkdir -p 'dir'; " + "; ".join(f"echo x > '{name}'" for name in names))
    doors.sh("ln -s 'javascript:window.pwned=1' '<a href=javascript:window.pwned=1>link'")


def clean_up(doors: Doors) -> None:
    """Leave the stack, which other tests use, without a template, or their dialogs would offer it."""
    with doors.stack.client() as admin:
        admin.post("/api/v1/templates/hostile:archive")
        admin.delete(f"/api/v1/workspaces/{doors.workspace_id}")


@pytest_asyncio.fixture
async def hostile(real: Stack) -> AsyncIterator[Doors]:
    doors = await asyncio.to_thread(open_doors, real, "hostile-texts")
    try:
        await asyncio.to_thread(prepare, doors)
        yield doors
    finally:
        await asyncio.to_thread(clean_up, doors)


async def visit(page: Page, stack: Stack, address: str) -> None:
    await page.goto("about:blank")
    await page.goto(f"{stack.url}/#{address}")
    await live(page)


async def test_no_text_of_a_workspace_or_of_another_user_runs_in_the_dashboard(
    real: Stack, hostile: Doors, page: Page, page_faults: list[str]
) -> None:
    doors = hostile
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await sign_in(page, real)
    for address, shown in PAGES.items():
        await visit(page, real, address.format(id=doors.workspace_id))
        if shown is not None:
            await expect(page.locator("#main")).to_contain_text(re.compile(re.escape(shown)))
        found = await page.evaluate(
            """() => ({
              ran: window.pwned ?? null,
              images: document.querySelectorAll("#main img, dialog img").length,
              scripts: document.querySelectorAll("#main script, dialog script").length,
              handlers: [...document.querySelectorAll("*")].filter((node) =>
                [...node.attributes].some((attribute) => attribute.name.startsWith("on"))).length,
              links: [...document.links].filter((link) => !/^https?:$/.test(link.protocol)).map((link) => link.href),
            })"""
        )
        assert found == {"ran": None, "images": 0, "scripts": 0, "handlers": 0, "links": []}, address
    assert dialogs == []
    # A file's content comes from the dashboard's own origin: shown as text or saved, never run.
    await asyncio.to_thread(doors.sh, "printf '<script>window.pwned=1</script>' > page.html")
    with real.client() as client:
        answer = await asyncio.to_thread(client.get, f"{doors.api}/files/page.html")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    page_faults.clear()  # the template's own preview may refuse its texts
