"""Ports of a workspace in Chromium, under a path and under hosts of their own: dev servers, waking, hostile pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from playwright.async_api import Page, expect

from e2e.pages import sign_in, submit_credentials
from e2e.stacks import browser_stack
from testing.codehub import vite
from testing.codehub.doors import Doors, open_doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.ports import free_ports

# On `::`, with absolute addresses where it is at a root, and a socket that says when the page is stale, as Next does.
NEXT_LIKE = r"""
const http = require("http"), crypto = require("crypto");
const sockets = new Set();
const server = http.createServer((request, response) => {
  if (request.url.startsWith("/_next/chunk.js")) {
    response.setHeader("content-type", "text/javascript");
    return response.end(`
      const socket = new WebSocket(new URL("_next/hmr", document.baseURI).href.replace(/^http/, "ws"));
      socket.onmessage = (event) => (document.getElementById("app").textContent = event.data);`);
  }
  if (request.url === "/push") {
    for (const socket of sockets) socket.write(Buffer.from([0x81, 6, ...Buffer.from("pushed")]));
    return response.end();
  }
  response.setHeader("content-type", "text/html");
  const seen = request.headers.cookie ?? "no cookie";
  response.end(`<title>next</title><div id="app">${seen}</div><script src="_next/chunk.js"></script>`);
});
server.on("upgrade", (request, socket) => {
  const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const accept = crypto.createHash("sha1").update(key).digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
  socket.write(`Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
  sockets.add(socket);
  socket.on("error", () => {}); socket.on("close", () => sockets.delete(socket));
});
server.listen(Number(process.argv[1]), "::");
"""


@dataclass(frozen=True)
class Site:
    doors: Doors
    mode: str

    @property
    def url(self) -> str:
        return self.doors.stack.url

    def origin(self) -> str:
        return self.doors.stack.value("CODEHUB_WORKSPACE_BASE_URL")


@pytest.fixture(scope="module", params=["path", "host"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with browser_stack(CODEHUB_WORKSPACE_HOST="*.localhost" if request.param == "host" else "none") as stack:
        yield Site(open_doors(stack), request.param)


@contextlib.asynccontextmanager
async def running(site: Site, command: str, port: int) -> AsyncIterator[str]:
    """A server in the workspace, listening; the address of its port."""
    server = await asyncio.to_thread(site.doors.serve, ["sh", "-c", "exec " + command], port)
    try:
        yield server.url
    finally:
        await asyncio.to_thread(site.doors.kill, server)


@pytest.mark.needs("npm")
async def test_vite_serves_an_application_and_replaces_its_modules_while_they_run(
    site: Site, page: Page, page_faults: list[str]
) -> None:
    doors = site.doors
    (port,) = free_ports(1)
    with doors.client() as client:
        project = await asyncio.to_thread(vite.project)
        put = client.put(doors.api + "/files/app", content=project, headers={"Content-Type": "application/x-tar"})
        assert put.status_code in (200, 201), put.text
    # Under a path an application must know it; under its own host it needs no configuration.
    base = f"--base /w/{doors.workspace_id}/port/{port}/" if site.mode == "path" else ""
    command = f"node app/node_modules/vite/bin/vite.js app --port {port} --strictPort {base}"
    async with running(site, command, port) as url:
        await sign_in(page, site)
        await page.goto(url)
        await expect(page.locator("#app")).to_have_text("first")
        loaded = await page.evaluate("window.loaded")
        with doors.client() as client:
            client.put(doors.api + "/files/app/text.js", content=b'export const text = "second";\n')
        await expect(page.locator("#app")).to_have_text("second")
        assert await page.evaluate("window.loaded") == loaded, "the page was loaded again instead"
    page_faults.clear()  # it has no icon


@pytest.mark.needs("npm")
async def test_a_server_on_the_ipv6_address_is_reached_with_its_socket(
    site: Site, page: Page, page_faults: list[str]
) -> None:
    (port,) = free_ports(1)
    async with running(site, f"node -e '{NEXT_LIKE}' {port}".replace("\n", " "), port) as url:
        await sign_in(page, site)
        async with page.expect_websocket() as opened:
            await page.goto(url)
        await opened.value
        # What the application saw of our cookies.
        await expect(page.locator("#app")).to_have_text("no cookie")
        await page.evaluate("fetch('push')")
        await expect(page.locator("#app")).to_have_text("pushed")
    page_faults.clear()  # it has no icon


async def test_a_page_waits_for_the_workspace_and_then_for_the_server(
    site: Site, page: Page, page_faults: list[str]
) -> None:
    (port,) = free_ports(1)
    doors = site.doors
    await sign_in(page, site)
    async with running(site, f"python3 -m http.server {port} --bind 127.0.0.1", port) as url:
        await page.goto(url)
        await expect(page.get_by_role("heading", name="Directory listing")).to_be_visible()
    await asyncio.to_thread(doors.sleep)
    await page.goto(url)
    await expect(page.get_by_role("heading", name="Your workspace is waking up")).to_be_visible()
    await expect(page.get_by_role("heading", name="Nothing listens on this port")).to_be_visible()
    async with running(site, f"python3 -m http.server {port} --bind 127.0.0.1", port):
        await expect(page.get_by_role("heading", name="Directory listing")).to_be_visible()
    page_faults.clear()  # Chromium reports the pages' own 502 and 503


@pytest.mark.full_chromium
async def test_a_hostile_page_on_a_port_reaches_neither_the_dashboard_nor_the_ide(
    site: Site, page: Page, page_faults: list[str]
) -> None:
    """What its script tries; under hosts of their own the IDE is another origin, under a path it is the same one."""
    doors = site.doors
    (port,) = free_ports(1)
    await sign_in(page, site)
    with doors.client() as client:
        ide = client.get(doors.api).json()["url"]
        client.put(doors.api + "/files/www/index.html", content=b"<title>hostile</title>")
    await page.goto(ide)
    async with running(site, f"python3 -m http.server {port} --bind 127.0.0.1 --directory www", port) as url:
        await page.goto(url)
        await expect(page).to_have_title("hostile")
        assert await page.evaluate("document.cookie") == ""
        assert await page.evaluate("localStorage.length") == 0

        async def attempt(script: str) -> str:
            return str(
                await page.evaluate(f"(async () => {{ try {{ {script} }} catch (error) {{ return 'no'; }} }})()")
            )

        api = f"{doors.stack.url}/api/v1"
        assert await attempt(_fetch(f"{api}/workspaces")) == "no"
        assert await attempt(_fetch(f"{api}/tokens", "POST", body='{"name": "stolen"}')) == "no"
        await attempt(_fetch(f"{api}/tokens", "POST", mode="no-cors", body='{"name": "stolen"}'))
        socket = f"{api.replace('http', 'ws', 1)}/workspaces/{doors.workspace_id}/terminals/0011223344556677/attach"
        closing = "new Promise((resolve) => { socket.onclose = (event) => resolve(event.code); })"
        assert await attempt(f"const socket = new WebSocket('{socket}'); return await {closing}") in ("4403", "1006")
        # The dashboard does not let itself be framed, and Chromium shows an error in its place. The page's own is shown.
        assert await attempt(_frame("index.html") + "return frame.contentDocument.title") == "hostile"
        for framed in ("", f"/terminal/{doors.workspace_id}"):
            assert await attempt(_frame(doors.stack.url + framed) + "return frame.contentDocument.title") == "no"
        loaded = {frame.url for frame in page.frames if frame.parent_frame is not None and frame.url}
        assert loaded == {f"{url}index.html", "chrome-error://chromewebdata/"}, loaded
        if site.mode == "host":
            assert await attempt(_fetch(f"{ide}run", "POST", body="touch pwned")) == "no"
            await attempt(_fetch(f"{ide}run", "POST", mode="no-cors", body="touch pwned"))
            assert await attempt(_fetch(ide)) == "no"
    assert "pwned" not in doors.sh("ls -a; ls -a www")
    with doors.client() as client:
        names = [token["name"] for token in client.get("/api/v1/tokens").json()["items"]]
    assert "stolen" not in json.dumps(names)
    page_faults.clear()


def _frame(address: str) -> str:
    """Opens a frame and waits until it is loaded, which it is with an error too."""
    return (
        "const frame = document.createElement('iframe');"
        f"const loaded = new Promise((resolve) => {{ frame.onload = resolve; }}); frame.src = {json.dumps(address)};"
        "document.body.append(frame); await loaded; "
    )


def _fetch(address: str, method: str = "GET", mode: str = "cors", body: str | None = None) -> str:
    options = {"method": method, "mode": mode, "credentials": "include"} | ({"body": body} if body else {})
    return f"return (await fetch({json.dumps(address)}, {json.dumps(options)})).status"


@pytest.mark.full_chromium
async def test_a_link_opens_a_port_for_somebody_who_is_not_signed_in(
    site: Site, page: Page, page_faults: list[str]
) -> None:
    doors = site.doors
    (port,) = free_ports(1)
    async with running(site, f"python3 -m http.server {port} --bind 127.0.0.1", port) as url:
        with doors.client() as owner:
            shared = owner.patch(f"{doors.api}/ports/{port}", json={"share": "link"})
            if site.mode == "path":
                # Its page would have the origin of the guest's own workspaces.
                assert (shared.status_code, "CODEHUB_WORKSPACE_HOST" in shared.text) == (403, True), shared.text
                return
            link = owner.post(f"{doors.api}/ports/{port}/links", json={"expires_in_s": 600}).json()
        await page.goto(link["url"])
        await expect(page.get_by_role("heading", name="Directory listing")).to_be_visible()
        assert page.url == url
        with doors.client() as owner:
            assert owner.delete(f"{doors.api}/ports/{port}/links/{link['id']}").status_code == 204
        await page.goto(url)
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        await page.get_by_role("link", name="Sign in instead").click()
        await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        page_faults.clear()


async def test_a_link_that_has_expired_says_so(site: Site, page: Page, page_faults: list[str]) -> None:
    doors = site.doors
    (port,) = free_ports(1)
    if site.mode == "path":
        return  # nothing is shared there
    async with running(site, f"python3 -m http.server {port} --bind 127.0.0.1", port):
        with doors.client() as owner:
            owner.patch(f"{doors.api}/ports/{port}", json={"share": "link"})
            links = f"{doors.api}/ports/{port}/links"
            url = owner.post(links, json={"expires_in_s": 1}).json()["url"]
            async with asyncio.timeout(TIMEOUT_S):
                while owner.get(links).json()["items"]:
                    await asyncio.sleep(0.2)
        answer = await page.goto(url)
        assert answer is not None
        assert answer.status == 401
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        await expect(page.get_by_text("It has expired or was revoked.")).to_be_visible()
        # Its owner is not locked out by an old link.
        await page.get_by_role("link", name="Sign in instead").click()
        await submit_credentials(page)
        await expect(page.get_by_role("heading", name="Directory listing")).to_be_visible()
        page_faults.clear()
