"""The dashboard's pages of a workspace's doors, on a whole CodeHub: files, ports, processes, SSH, the terminal's panel."""

from __future__ import annotations

import asyncio
import re
import tarfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Route, expect

from e2e.pages import press, sign_in
from e2e.stacks import browser_stack
from testing.browser import close_context, with_long_timeouts
from testing.codehub.doors import Doors, open_doors
from testing.ports import free_ports

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJWzHDVTGdnT5ymHhIl0Y8mQYx4nFMVXDLTrtUYC{0} laptop-{0}"


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    with browser_stack() as stack:
        yield open_doors(stack)


async def open_tab(page: Page, doors: Doors, tab: str) -> None:
    await sign_in(page, doors.stack)
    await page.goto(f"{doors.stack.url}/#/workspaces/{doors.workspace_id}")
    await page.get_by_role("navigation", name="About this workspace").get_by_role("link", name=tab).click()


async def test_files_are_browsed_uploaded_downloaded_and_deleted(doors: Doors, page: Page, tmp_path: Path) -> None:
    doors.sh("mkdir -p src/deep; printf one > src/one.txt; printf two > 'src/deep/ü %41 #.txt'")
    await open_tab(page, doors, "Files")
    await page.get_by_role("link", name="src/").click()
    await expect(page.get_by_role("row", name=re.compile("one.txt"))).to_be_visible()
    files = {"picked.txt": b"picked", "big.bin": bytes(3_000_000)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    await page.locator("input[type=file]").set_input_files([tmp_path / name for name in files])
    await expect(page.get_by_text("2 files were uploaded.")).to_be_visible()
    assert doors.sh("cat src/picked.txt; stat -c %s src/big.bin") == "picked3000000\n"

    async with page.expect_download() as started:
        await press(page, "Download big.bin")
    saved = await (await started.value).path()
    assert saved.read_bytes() == files["big.bin"]
    await page.get_by_role("link", name="Home", exact=True).click()
    async with page.expect_download() as started:
        await press(page, "Download src.tar")
    with tarfile.open(await (await started.value).path()) as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
    assert {"one.txt", "deep/ü %41 #.txt"} <= {name.removeprefix("src/") for name in names}

    await page.get_by_role("link", name="src/").click()
    await page.get_by_role("link", name="deep/").click()
    await press(page, "Delete ü %41 #.txt")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("This folder is empty.")).to_be_visible()
    assert doors.sh("ls src/deep") == ""


async def test_a_large_folder_is_shown_in_parts(doors: Doors, page: Page) -> None:
    doors.sh("mkdir large; cd large; touch $(seq -f file-%04g 1 1200)")
    await open_tab(page, doors, "Files")
    await page.get_by_role("link", name="large/").click()
    rows, more = page.locator("table.files tbody tr"), page.get_by_text("Show more")
    await expect(rows).to_have_count(500)
    await more.press("Enter")
    await expect(rows).to_have_count(1000)
    await expect(page.locator("button[aria-label='Download file-0501']")).to_be_focused()
    await more.press("Enter")
    await expect(rows).to_have_count(1200)
    await expect(more).to_be_hidden()
    doors.sh("rm -r large")


async def test_names_that_lead_out_of_the_workspace_reach_no_other_route(
    doors: Doors, page: Page, page_faults: list[str]
) -> None:
    """Code in a workspace decides what its lists answer. A browser follows `..` in an address to another route."""
    with doors.client() as client:
        made = client.post("/api/v1/workspaces", json={"name": "other", "start": False})
        assert made.status_code == 201, made.text
    other = made.json()["id"]
    file = {
        "path": "notes",
        "encoded_path": f"../../{other}",
        "type": "file",
        "size": 1,
        "modified_at": "2026-01-01T00:00:00Z",
    }
    process = {
        "id": f"../../{other}:start?", "command": "make", "state": "running", "exit_code": None, "cpu_percent": 1.0,
        "started_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    terminal = {"id": f"../../{other}", "command": "bash", "viewers": 0, "started_at": "2026-01-01T00:00:00Z"}
    for pattern, item in (
        ("**/files/?list=1*", file),
        ("**/processes?wake=0", process),
        ("**/terminals?wake=0", terminal),
    ):
        await page.route(pattern, partial(_answer, item))
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.method} {request.url}"))
    await open_tab(page, doors, "Files")
    await press(page, "Delete notes")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("This name leads out of the workspace")).to_be_visible()
    # A link's parameters would become those of the request that deletes a file.
    await page.goto(
        f"{doors.stack.url}/#/workspaces/{doors.workspace_id}/files?path=project%3Frecursive%3D1%26list%3D1"
    )
    await expect(page.get_by_text("This is not the path of a file.")).to_be_visible()
    await page.goto(f"{doors.stack.url}/#/workspaces/{doors.workspace_id}/processes")
    for button, answer in (("Kill make", "Kill"), ("Close the terminal bash", "Close")):
        async with page.expect_response(re.compile(r"/(processes|terminals)/")):
            await press(page, button)
            await page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
    changes = [each for each in sent if not each.startswith(("GET ", "POST " + doors.stack.url + "/api/v1/login"))]
    assert changes
    assert not [each for each in sent if f"/workspaces/{other}" in each or "recursive" in each], sent
    with doors.client() as client:
        assert client.get(f"/api/v1/workspaces/{other}").json()["desired_state"] == made.json()["desired_state"]
        assert client.delete(f"/api/v1/workspaces/{other}").status_code == 204
    page_faults.clear()  # there is no such process, and no such terminal


async def _answer(item: Mapping[str, object], route: Route) -> None:
    await route.fulfill(json={"items": [item]})


async def test_files_and_folders_are_dropped_onto_the_page(doors: Doors, page: Page, tmp_path: Path) -> None:
    below = tmp_path / "dropped" / "sub"
    below.mkdir(parents=True)
    (below / "ün#1?%.txt").write_text("below")
    (tmp_path / "dropped" / "empty").touch()
    (tmp_path / "file.txt").write_text("file")
    await open_tab(page, doors, "Files")
    place = await page.locator(".drop").bounding_box()
    assert place is not None
    files = [str(tmp_path / "dropped"), str(tmp_path / "file.txt")]
    browser = await page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        what = {"items": [], "files": files, "dragOperationsMask": 1}
        at = {"x": place["x"] + 50, "y": place["y"] + 50}
        await browser.send("Input.dispatchDragEvent", {"type": kind, "data": what, **at})
    await expect(page.get_by_text("3 files were uploaded.")).to_be_visible()
    assert doors.sh("cat file.txt dropped/sub/*") == "filebelow"
    assert doors.sh("ls dropped dropped/sub").split() == ["dropped:", "empty", "sub", "dropped/sub:", "ün#1?%.txt"]


async def test_an_upload_that_is_cancelled_leaves_nothing(doors: Doors, page: Page, page_faults: list[str]) -> None:
    await open_tab(page, doors, "Files")
    held = asyncio.Event()

    async def hold(route):  # type: ignore[no-untyped-def]
        held.set()

    await page.route("**/files/slow.bin", hold)
    chooser = page.locator("input[type=file]")
    await chooser.set_input_files({"name": "slow.bin", "mimeType": "application/octet-stream", "buffer": bytes(1000)})
    await held.wait()
    await press(page, "Cancel slow.bin")
    await expect(page.get_by_role("list", name="Transfers").get_by_role("listitem")).to_have_count(0)
    assert "slow.bin" not in doors.sh("ls -a")


async def test_ports_are_listed_shared_and_linked(doors: Doors, page: Page) -> None:
    (port,) = free_ports(1)
    with doors.client() as client:
        command = ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"]
        made = client.post(doors.api + "/processes", json={"command": command}).json()
    await open_tab(page, doors, "Ports")
    row = page.locator(f"[data-port='{port}']")
    await expect(row).to_contain_text("python3")
    await expect(row).to_contain_text(f"codehub port-forward doors {port}")
    await row.get_by_label(f"Who may open port {port}").select_option("link")
    await row.get_by_role("button", name="New link").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Valid for").select_option("3600")
    await dialog.get_by_role("button", name="Make link").click()
    await expect(dialog.get_by_label("Address")).to_have_value(re.compile(r"codehub_link="))
    await dialog.get_by_role("button", name="I have copied it").click()
    await row.get_by_role("button", name="Revoke").click()
    await dialog.get_by_role("button", name="Revoke").click()
    await expect(row.get_by_role("button", name="Revoke")).to_have_count(0)
    with doors.client() as client:
        client.post(f"{doors.api}/processes/{made['id']}/signal", json={"signal": "KILL"})
    await expect(row).to_have_count(0)


async def test_processes_are_seen_stopped_and_the_workspace_is_kept_awake(doors: Doors, page: Page) -> None:
    with doors.client() as client:
        command = "echo begun; exec sleep 12345"
        client.post(doors.api + "/processes", json={"command": command})
    await open_tab(page, doors, "Processes")
    line = page.get_by_role("listitem").filter(has_text="sleep 12345").filter(has_text="Running")
    await expect(line).to_be_visible()
    await line.get_by_role("button", name=re.compile("^Output")).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("begun")
    await dialog.get_by_role("button", name="Close").click()
    await line.get_by_role("button", name=re.compile("^Kill")).click()
    await dialog.get_by_role("button", name="Kill").click()
    await expect(line).to_have_count(0)
    await press(page, "Keep awake 4 h")
    await expect(page.get_by_role("status").filter(has_text="Kept awake until")).to_be_visible()
    await press(page, "Let it sleep")
    await expect(page.get_by_role("button", name="Let it sleep")).to_be_hidden()


async def test_ssh_shows_what_to_paste_and_the_host_key(doors: Doors, page: Page) -> None:
    await open_tab(page, doors, "SSH")
    await expect(page.get_by_text("You have no SSH key here yet")).to_be_visible()
    with doors.client() as client:
        assert client.post("/api/v1/keys", json={"public_key": KEY.format("BBBB"), "name": "mine"}).status_code == 201
    await page.reload()
    await expect(page.get_by_text("ssh doors.codehub", exact=True)).to_be_visible()
    await expect(page.get_by_text(re.compile(r"codehub login http.* && codehub config-ssh"))).to_be_visible()
    await press(page, "Create it now")
    fingerprint = page.get_by_text(re.compile(r"^SHA256:"))
    await expect(fingerprint).to_be_visible()
    with doors.client() as client:
        assert client.get(doors.api + "/ssh").json()["fingerprint"] == await fingerprint.inner_text()


async def test_the_terminal_is_a_panel_too(doors: Doors, page: Page) -> None:
    await open_tab(page, doors, "Terminal")
    frame = page.frame_locator("iframe[title=Terminal]")
    await expect(frame.locator("body[data-state=connected]")).to_be_attached()
    await frame.locator(".xterm-helper-textarea").focus()
    await page.keyboard.insert_text("echo panel-$((40 + 2))")
    await page.keyboard.press("Enter")
    await expect(frame.locator(".xterm-rows")).to_contain_text("panel-42")


async def test_a_page_that_is_open_shows_no_usage_of_a_sleeping_workspace(doors: Doors, page: Page) -> None:
    await open_tab(page, doors, "SSH")
    usage = page.get_by_text(re.compile("^Uses "))
    await expect(usage).to_be_visible()
    doors.sleep()
    await expect(page.locator("[data-status=STOPPED]")).to_be_attached()
    assert not await usage.is_visible()
    doors.sh("true")  # the other tests need it awake


async def test_an_account_has_keys_and_tokens_for_one_workspace(
    doors: Doors, page: Page, page_faults: list[str]
) -> None:
    await sign_in(page, doors.stack)
    await page.get_by_role("link", name="Account").click()
    await press(page, "New token")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("for one")
    await dialog.get_by_label("Opens").select_option(label="Only doors")
    await dialog.get_by_label("Days until it expires").fill("7")
    await dialog.get_by_role("button", name="Create token").click()
    token = await dialog.get_by_label("Token", exact=True).input_value()
    await dialog.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("region", name="API tokens").get_by_role("row", name=re.compile("for one"))
    await expect(row).to_contain_text("doors")
    with doors.client(token) as client:
        assert client.get(doors.api).status_code == 200
        assert client.get("/api/v1/workspaces").status_code == 403
    await press(page, "Add key")
    await dialog.get_by_label("Public key").fill("not a key")
    await dialog.get_by_role("button", name="Add key").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await dialog.get_by_label("Public key").fill(KEY.format("CCCC"))
    await dialog.get_by_role("button", name="Add key").click()
    await expect(page.get_by_role("region", name="SSH keys")).to_contain_text("laptop-CCCC")
    page_faults.clear()  # the refused key


@pytest.mark.parametrize("width", [390, 1280])
async def test_every_page_of_a_door_fits_and_passes_a_screen_readers_rules(
    doors: Doors, browser: Browser, width: int
) -> None:
    context = with_long_timeouts(await browser.new_context(viewport={"width": width, "height": 780}, bypass_csp=True))
    page = await context.new_page()
    await sign_in(page, doors.stack)
    loaded = {"files": "Drop files", "ports": "on any address", "processes": "exec", "ssh": "Host key"}
    for tab, text in loaded.items():
        await page.goto(f"{doors.stack.url}/#/workspaces/{doors.workspace_id}/{tab}")
        await expect(page.locator(f".tabs a[href$='/{tab}'][aria-current=page]")).to_be_visible()
        await expect(page.get_by_text(text).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    await page.goto(f"{doors.stack.url}/terminal/{doors.workspace_id}")
    await expect(page.locator("body[data-state=connected]")).to_be_attached()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await close_context(context)
