"""Pages on ports call each other across origins in Chromium: within a workspace they may, others may not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from playwright.async_api import Page

from e2e.pages import sign_in
from e2e.stacks import browser_stack
from testing.codehub.doors import Doors, open_doors
from testing.codehub.full_stack import Stack
from testing.ports import free_ports

pytestmark = pytest.mark.full_chromium

# Knows nothing of CORS, and notes who asked.
API = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        request = [self.command, self.path, self.rfile.read(length).decode(), self.headers.get("Cookie")]
        with open("heard", "a") as heard:
            heard.write(json.dumps(request) + "\\n")
        body = b"<title>port</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = do_OPTIONS = answer
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CALL = """async ([url, method, body]) => {
  const options = {method, credentials: "include"};
  if (body) Object.assign(options, {body, headers: {"Content-Type": "application/json"}});
  try { const answer = await fetch(url, options); return `${answer.status} ${await answer.text()}`; }
  catch (error) { return "no"; }
}"""

# What a page may load from another origin without asking: a script, a picture, a frame, an answer that it cannot read.
EMBED = """async ([url, referrerPolicy]) => {
  const load = (name) => new Promise((done) => {
    const node = document.createElement(name);
    Object.assign(node, {referrerPolicy, onload: done, onerror: done, src: `${url}-${name}`});
    document.body.append(node);
  });
  for (const name of ["script", "img", "iframe"]) await load(name);
  await fetch(`${url}-fetch`, {mode: "no-cors", credentials: "include", referrerPolicy}).catch(() => 0);
}"""
LOADED = [f"-{name}" for name in ("script", "img", "iframe", "fetch")]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # Below one site, as the hosts of a real domain: browsers send cookies from one to the other.
    with browser_stack(CODEHUB_WORKSPACE_HOST="*.codehub.localhost") as made:
        yield made


def serve(doors: Doors) -> str:
    """Start the application on a free port of the workspace, and return the port's address."""
    (port,) = free_ports(1)
    return doors.serve(["python3", "-c", API, str(port)], port).url


async def visit(page: Page, url: str) -> None:
    """Open a page, by way of the hand-over if nobody is signed in there yet."""
    await page.goto(url)
    await page.wait_for_url(url)


async def call(page: Page, url: str, method: str = "GET", body: str = "") -> str:
    return str(await page.evaluate(CALL, [url, method, body]))


async def test_ports_of_one_workspace_call_each_other_and_nobody_else_does(
    stack: Stack, page: Page, page_faults: list[str]
) -> None:
    mine, other = [await asyncio.to_thread(open_doors, stack, name) for name in ("mine", "other")]
    front, back, hostile = [await asyncio.to_thread(serve, doors) for doors in (mine, mine, other)]
    with mine.client() as client:
        ide = client.get(mine.api).json()["url"]
    await sign_in(page, stack)
    await visit(page, front)
    assert await call(page, back + "early", "POST", "{}") == "no", (
        "the port was never opened, so nobody is signed in to it"
    )
    await visit(page, back)
    await visit(page, front)
    assert await call(page, back + "read") == "200 <title>port</title>"
    assert await call(page, back + "write", "POST", '{"from": "front"}') == "200 <title>port</title>"
    for place in (hostile, ide, f"{stack.url}/health"):
        await visit(page, place)
        assert await call(page, back + "stolen") == "no", place
        assert await call(page, back + "forged", "POST", "{}") == "no", place
        assert await call(page, back + "forged", "DELETE") == "no", place
        await page.evaluate(
            "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include', body: 'x'}).catch(() => 0)",
            back + "forged",
        )
        for referrer in ("no-referrer", "origin", "unsafe-url"):
            await page.evaluate(EMBED, [back + "embedded", referrer])
    await visit(page, front)
    await page.evaluate(EMBED, [back + "shown", ""])
    heard = [json.loads(line) for line in (await asyncio.to_thread(mine.sh, "cat heard")).splitlines()]
    assert ["POST", "/write", '{"from": "front"}', None] in heard
    refused = ("/early", "/forged", "/stolen", *(f"/embedded{name}" for name in LOADED))
    assert [path for _, path, *_ in heard if path in refused] == []
    assert [path for _, path, *_ in heard if path.startswith("/shown")] == [f"/shown{name}" for name in LOADED]
    assert {cookie for *_, cookie in heard} == {None}, "CodeHub's cookies never reach the application"
    page_faults.clear()  # Chromium reports what it refused
