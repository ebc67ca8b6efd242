"""sari's search page in a real browser, on a real daemon: opened by `sari web`, without a network."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from testing.sari.home import SariHome, sari_home
from testing.sari.web import Web

CODE = '''"""A shop."""


class Basket:
    """What was put in."""

    def add(self, apples: int) -> int:
        """Put apples in."""
        return apples + 1


def checkout(basket: Basket) -> str:
    return f"paid for {basket}"
'''


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as made:
        made.write("shop/basket.py", CODE)
        made.write("shop/readme.md", "Apples & <b>pears</b>, apples again\n")
        made.write("deep/er/other.txt", "no fruit here\n")
        yield made


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """A program of a project, or of another user, on this machine. Returns its address and the cookies that it hears."""
    heard: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", heard
        server.shutdown()
        thread.join()


async def address_of(home: SariHome) -> str:
    done = await asyncio.to_thread(home.sari, "web", "--no-open")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def open_page(page: Page, home: SariHome, faults: list[str]) -> None:
    """Open the page the way `sari web` does. The browser itself notes that the first answer asked to sign in."""
    await page.goto(await address_of(home))
    await expect(page.get_by_role("searchbox")).to_be_visible()
    await expect(page.locator("#index-state")).to_contain_text("sari 3.")
    assert all("401" in fault for fault in faults), faults
    faults.clear()


async def test_what_is_typed_is_found_marked_and_opened(page: Page, home: SariHome, page_faults: list[str]) -> None:
    await open_page(page, home, page_faults)
    assert "key=" not in page.url, "the key is not left in the address"
    await page.get_by_role("searchbox").type("apples")
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    await expect(page.locator("#results mark")).to_have_count(5)
    await expect(page.locator("#results mark").first).to_have_text(re.compile("^apples$", re.IGNORECASE))
    readme = page.locator("#results .hit", has_text="pears")
    # What a file holds is text, never markup.
    await expect(readme).to_contain_text("<b>pears</b>")
    await page.locator("#results .hit", has_text="def add").click()
    await expect(page.get_by_role("region", name="File")).to_be_visible()
    await expect(page.locator("#viewer-path")).to_have_text("shop/basket.py")
    await expect(page.locator("#source .here")).to_contain_text("def add(self, apples: int)")
    await expect(page.locator("#source .row").first).to_contain_text("A shop.")
    await page.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("region", name="File")).to_be_hidden()
    await page.locator("#results .hit", has_text="def add").click()
    await expect(page.get_by_role("region", name="File")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("region", name="File")).to_be_hidden()
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.get_by_role("searchbox").fill("nothing like this")
    await expect(page.locator("#results")).to_contain_text("Nothing matches")


async def test_modes_paths_and_keys(page: Page, home: SariHome, page_faults: list[str]) -> None:
    await open_page(page, home, page_faults)
    await page.get_by_role("searchbox").fill("appl")
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    await page.get_by_label("How the text is read").select_option("words")
    await expect(page.locator("#results")).to_contain_text("Nothing matches")
    await page.get_by_label("How the text is read").select_option("regex")
    await page.get_by_role("searchbox").fill(r"a(pp)les\b")
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    await page.get_by_label("Only these paths").fill("*.md")
    await expect(page.locator("#summary")).to_contain_text("1 match")
    await page.get_by_role("searchbox").fill("a(")
    await expect(page.locator("#results .failed")).to_be_visible()
    await page.get_by_label("Only these paths").fill("")
    await page.get_by_role("searchbox").fill("apples")
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("#source .here")).to_be_visible()
    # The browser logs each answer that refused the broken expression, at a time of its own.
    page_faults[:] = [fault for fault in page_faults if "400" not in fault]


async def test_symbols_files_and_an_outline(page: Page, home: SariHome, page_faults: list[str]) -> None:
    await open_page(page, home, page_faults)
    await page.get_by_label("What to search").select_option("symbols")
    await page.get_by_role("searchbox").fill("add")
    await page.locator("#results .hit", has_text="Basket.add").click()
    await expect(page.locator("#source .here")).to_contain_text("def add")
    await expect(page.locator("#source .within")).to_have_text(
        [re.compile("Put apples in"), re.compile("return apples")]
    )
    await page.get_by_text("Outline").click()
    await page.get_by_role("button", name="function checkout").click()
    await expect(page.locator("#source .here")).to_contain_text("def checkout")
    await page.get_by_label("What to search").select_option("files")
    await page.get_by_role("searchbox").fill("bskt")
    await expect(page.locator("#results .hit").first).to_contain_text("shop/basket.py")


async def test_what_was_typed_before_the_page_was_ready_is_searched(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    """Typed before the script ran, its input events are lost: the page must look at its field by itself."""
    await open_page(page, home, page_faults)
    held = asyncio.Event()

    async def hold(route: object) -> None:
        await held.wait()
        await route.continue_()  # type: ignore[attr-defined]

    await page.route("**/app.js", hold)
    reload = asyncio.ensure_future(page.reload())
    await page.locator("#query").wait_for(state="attached")
    await page.locator("#query").fill("apples")
    held.set()
    await reload
    await expect(page.locator("#summary")).to_contain_text("4 matches")


async def test_a_reload_keeps_the_search_and_a_daemon_that_is_replaced_goes_unnoticed(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    await open_page(page, home, page_faults)
    await page.get_by_role("searchbox").fill("apples")
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    await page.reload()
    await expect(page.locator("#summary")).to_contain_text("4 matches")
    assert (await asyncio.to_thread(home.sari, "daemon", "restart")).returncode == 0
    await page.get_by_role("searchbox").fill("paid for")
    await expect(page.locator("#summary")).to_contain_text("1 match")
    home.write("new.txt", "kumquat\n")
    await page.get_by_role("searchbox").fill("kumquat")
    await expect(page.locator("#summary")).to_contain_text("1 match")
    # A connection that broke, or a workspace that had to be opened again, is noted by the browser and fixed by the page.
    page_faults[:] = [fault for fault in page_faults if "Failed to load resource" not in fault]


async def test_the_status_view_shows_index_clients_daemon_and_doctor(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    await open_page(page, home, page_faults)
    await page.get_by_role("button", name="Status").click()
    info = json.loads((await asyncio.to_thread(home.sari, "status", "--json")).stdout)
    await expect(page.locator("#index-table")).to_contain_text(str(home.workspace))
    await expect(page.locator("#index-table")).to_contain_text("ready")
    await expect(page.locator("#sessions-table")).to_contain_text("web page")
    await expect(page.locator("#daemon-table tbody tr")).to_have_count(1)
    await expect(page.locator("#daemon-table")).to_contain_text(str(info["pid"]))
    await expect(page.locator("#daemon-table")).to_contain_text("serving")
    await expect(page.locator("#doctor-table .verdict")).to_be_visible()
    await page.get_by_role("button", name="Compare with the disk now").click()
    await expect(page.locator("#rescan-say")).to_contain_text("had changed")


async def test_a_used_or_forged_key_is_refused_with_its_reason(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    address = await address_of(home)
    await page.goto(address)
    await expect(page.get_by_role("searchbox")).to_be_visible()
    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(address)
    await expect(page.get_by_role("status")).to_contain_text("run `sari web` again")
    page_faults.clear()


async def test_a_listener_on_another_port_hears_a_cookie_that_opens_nothing(
    page: Page, home: SariHome, page_faults: list[str], listener: tuple[str, list[str]]
) -> None:
    await open_page(page, home, page_faults)
    elsewhere, heard = listener
    await page.goto(elsewhere)
    # As after any link or redirect to it: this navigation is the listener's own, so the cookie is sent.
    await page.evaluate("location.assign('/again')")
    await page.wait_for_url("**/again")
    cookie = next(one for one in heard if "sari_" in one)
    web = Web(home)
    for path in ("/status", "/search?q=apples", f"/read?path=shop/basket.py&workspace={home.workspace}"):
        assert (await asyncio.to_thread(web.ask, path, token=None, Cookie=cookie)).status == 401
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await asyncio.to_thread(web.ask, "/mcp", "POST", call, token=None, Cookie=cookie)).status == 401
    page_faults.clear()


async def test_a_page_without_its_key_shows_how_to_sign_in(
    page: Page, home: SariHome, page_faults: list[str]
) -> None:
    await open_page(page, home, page_faults)
    await page.evaluate("localStorage.clear()")
    await page.reload()
    await expect(page.get_by_role("status")).to_contain_text("Run sari web")
    page_faults.clear()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
async def test_the_page_is_accessible(
    page: Page, home: SariHome, page_faults: list[str], scheme: str, width: int
) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": 800})
    await open_page(page, home, page_faults)
    await page.get_by_role("searchbox").fill("apples")
    await page.locator("#results .hit").first.click()
    await expect(page.locator("#source .here")).to_be_visible()
    for view in ("Search", "Status"):
        await page.get_by_role("button", name=view, exact=True).click()
        if view == "Status":
            await expect(page.locator("#doctor-table .verdict")).to_be_visible()
            await page.locator("#doctor-table summary").click()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, (
            f"{view} is wider than its window"
        )
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
