"""Tests of the browser fixture: a script runs, a context is fresh, a page's exceptions are detected."""

from __future__ import annotations

from playwright.async_api import Browser, Page

from testing.browser import patient


async def test_a_page_runs_its_script(page: Page) -> None:
    await page.set_content("<p id=a></p><script>document.getElementById('a').textContent = 'ran'</script>")
    assert await page.locator("#a").text_content() == "ran"


async def test_what_a_page_throws_is_noticed(page: Page, page_faults: list[str]) -> None:
    await page.set_content("<script>console.error('one'); throw new Error('two')</script><p>done</p>")
    await page.locator("p").wait_for()
    assert {fault.split(":")[0] for fault in page_faults} == {"logged", "thrown"}
    page_faults.clear()


async def test_two_contexts_share_no_cookies(browser: Browser) -> None:
    first, second = patient(await browser.new_context()), patient(await browser.new_context())
    await first.add_cookies([{"name": "a", "value": "b", "url": "http://localhost"}])
    assert len(await first.cookies()) == 1
    assert await second.cookies() == []
