"""Tests of the browser fixture: a script runs, a context is fresh, a page's exceptions are detected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from testing.browser import browser_pid, chromium, with_long_timeouts


async def test_a_page_runs_its_script(page: Page) -> None:
    await page.set_content("<p id=a></p><script>document.getElementById('a').textContent = 'ran'</script>")
    assert await page.locator("#a").text_content() == "ran"


async def test_what_a_page_throws_is_noticed(page: Page, page_faults: list[str]) -> None:
    await page.set_content("<script>console.error('one'); throw new Error('two')</script><p>done</p>")
    await page.locator("p").wait_for()
    assert {fault.split(":")[0] for fault in page_faults} == {"logged", "thrown"}
    page_faults.clear()


async def test_two_contexts_share_no_cookies(browser: Browser) -> None:
    first, second = with_long_timeouts(await browser.new_context()), with_long_timeouts(await browser.new_context())
    await first.add_cookies([{"name": "a", "value": "b", "url": "http://localhost"}])
    assert len(await first.cookies()) == 1
    assert await second.cookies() == []


async def test_a_browser_that_hangs_is_killed_when_it_is_closed() -> None:
    async with chromium(closes_within_s=1) as browser:
        pid = await browser_pid(browser)
        os.kill(pid, signal.SIGSTOP)
    assert not Path(f"/proc/{pid}/exe").exists(), "still running"


@pytest.mark.full_chromium
async def test_a_marked_test_gets_the_browser_that_people_use(browser: Browser) -> None:
    assert Path(f"/proc/{await browser_pid(browser)}/exe").readlink().name == "chromium"


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("full", [False, True])
async def test_the_browser_is_refused_netlink_and_so_never_notices_a_network_interface(full: bool) -> None:
    async with chromium(full=full) as browser:
        status = Path(f"/proc/{await browser_pid(browser)}/status").read_text(encoding="ascii")
    assert "Seccomp:\t2\n" in status
    code = (
        "import socket; from testing.quiet_chromium import refuse_netlink; refuse_netlink(); socket.socket().close();"
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert "Address family not supported" in done.stderr
