"""A page that a workspace serves, in a real browser: it reaches neither the API nor another workspace, and hears no cookie.

The workspace, the proxy and the dashboard are all real. test_hostile_page.py shows that a cookie which is heard all the
same opens nothing.
"""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest
from playwright.async_api import BrowserContext, Error, expect

from testing.codehub.docker import DockerEngine
from testing.codehub.doors import Doors, on_docker, on_processes, open_doors
from testing.codehub.full_stack import Stack, fresh_stack
from testing.ports import free_ports

pytestmark = [pytest.mark.timeout(900), pytest.mark.full_chromium]
RUNTIMES = [
    pytest.param("process", marks=pytest.mark.needs("bwrap", "slirp4netns", "root")),
    pytest.param("docker", marks=[pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker")]),
]

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("heard", "a") as heard:
            heard.write(self.path + " " + str(self.headers.get("Cookie")) + "\\n")
        body = open("page.html", "rb").read()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
"""
PAGE = """<!doctype html><title>hostile</title><body><script>
async function attempt(url, options) {
  const end = new AbortController();
  setTimeout(() => end.abort(), 4000);
  try { await fetch(url, {credentials: "include", signal: end.signal, ...options}); return "reached"; }
  catch (error) { return "failed"; }
}
(async () => {
  const seen = {};
  seen.api = await attempt("%(api)s/api/v1/session");
  seen.change = await attempt("%(api)s/api/v1/tokens", {method: "POST", body: '{"name": "evil"}',
    headers: {"Content-Type": "application/json"}});
  for (const place of %(places)s) {
    seen[place] = await attempt(place + "/direct", {mode: "no-cors"});
    open(place + "/popup");
    const frame = document.createElement("iframe");
    const form = document.createElement("form");
    Object.assign(form, {action: place + "/form", method: "post", target: "_blank"});
    document.body.append(frame, form);
    form.submit();
    await new Promise((done) => { frame.onload = done; frame.src = place + "/frame"; setTimeout(done, 4000); });
    await new Promise((done) => {
      const socket = new WebSocket(place.replace("http", "ws") + "/socket");
      socket.onopen = socket.onerror = done;
      setTimeout(done, 4000);
    });
  }
  seen.cookies = document.cookie;
  seen.key = localStorage.getItem("codehub.session_key");
  document.title = JSON.stringify(seen);
})();
</script></body>"""


def serve_page(doors: Doors, port: int, page: str) -> str:
    """The page on a port of the workspace; its address at the proxy."""
    with doors.client() as client:
        assert client.put(doors.api + "/files/page.html", content=page.encode()).is_success
    return doors.serve(["python3", "-c", SERVER, str(port)], port).url


def addresses(engine: DockerEngine, workspace_id: str) -> list[str]:
    with engine.client() as client:
        shown = client.get(f"http://docker/containers/codehub-ws-{workspace_id}/json").json()
    return [network["IPAddress"] for network in shown["NetworkSettings"]["Networks"].values()]


async def sign_in(stack: Stack, context: BrowserContext) -> str:
    with stack.client() as client:
        secret = client.cookies["session"]
        key = client.headers["X-CodeHub-Session-Key"]
        await context.add_cookies([{"name": "session", "value": secret, "url": stack.url}])
        page = await context.new_page()
        await page.goto(f"{stack.url}/health")
        await page.evaluate("key => localStorage.setItem('codehub.session_key', key)", key)
        await page.close()
    return secret


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_a_page_of_a_workspace_reaches_nothing_and_its_workspace_hears_no_cookie(
    runtime: str, request: pytest.FixtureRequest, browser_context: BrowserContext
) -> None:
    engine: DockerEngine | None = request.getfixturevalue("docker_engine") if runtime == "docker" else None
    with fresh_stack() as stack:
        (on_processes if engine is None else on_docker(engine))(stack)
        await asyncio.to_thread(stack.up)
        doors = await asyncio.to_thread(open_doors, stack)
        (port,) = free_ports(1)
        places = [f"http://127.0.0.1:{port}"]
        if engine is not None:
            (own,) = addresses(engine, doors.workspace_id)
            places += [f"http://{own}:{port}", f"http://{own}:8080"]
        body = PAGE % {"api": stack.url, "places": json.dumps(places)}
        address = await asyncio.to_thread(serve_page, doors, port, body)
        secret = await sign_in(stack, browser_context)
        page = await browser_context.new_page()
        await page.goto(address)
        await expect(page).to_have_title(re.compile(r"\{.*\}$"))
        seen = await page.evaluate("JSON.parse(document.title.replace(/^.* · /, ''))")
        assert {seen[name] for name in ("api", "change", *places)} == {"failed"}, seen
        assert "session" not in seen["cookies"]
        assert seen["key"] is None
        # Nothing of the workspace listens on the dashboard's host, so no navigation brings it a cookie.
        with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
            await page.goto(f"http://127.0.0.1:{port}/navigation")
        heard = await asyncio.to_thread(doors.sh, "cat heard")
        assert "/ " in heard, "the page was served by the workspace"
        assert not {"navigation", "direct", "popup", "frame", "form", "socket"} & set(
            re.findall(r"^/(\w+)", heard, re.M)
        )
        assert secret not in heard
        async with httpx.AsyncClient(
            base_url=stack.url, headers={"Authorization": f"Bearer {doors.token}"}
        ) as client:
            tokens = (await client.get("/api/v1/tokens")).json()["items"]
        assert "evil" not in [token["name"] for token in tokens]
