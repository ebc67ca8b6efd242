"""The script in an IDE's pages: it is inserted into those pages and nothing else, to the byte, and what it asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from codehub.domain.profiles import AppProfile
from codehub.proxy.tab import script, tab_script
from testing.codehub.api import put_in_state
from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.proxy_access import NAVIGATION, World, world
from testing.codehub.rawhttp import Message, Peer, ScriptedUpstream

HOST = "Host: localhost:8001\r\n"
PAGE = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nAccept-Encoding: gzip, br\r\n"
PROFILE = AppProfile("ide", command=("ide",), pages=("/", "/lab/*"))
SCRIPT = f'<script src="{PREFIX}/_codehub/tab.js" data-prefix="{PREFIX}" data-reload="1"></script>'
INSERTED = f"<!doctype html>{SCRIPT}\n".encode()
HTML = "<!doctype html><html><head><title>IDE</title></head></html>"


@pytest.fixture
def ide() -> Iterator[tuple[RunningProxy, ScriptedUpstream]]:
    """A proxy whose one target is an IDE with pages."""
    with wired() as (proxy, upstream):
        answering(upstream, "200 OK\r\nConnection: close\r\nContent-Length: 0", "", close=True)
        with proxy.connect() as client:
            get(client, "/first", "")
        assert proxy.admitter.admission is not None
        proxy.admitter.admission.target.tab = tab_script(PROFILE, PREFIX.encode())
        yield proxy, upstream


def answering(upstream: ScriptedUpstream, head: str, body: str, *, close: bool = False) -> list[Message]:
    requests: list[Message] = []

    def serve(peer: Peer) -> None:
        while True:
            requests.append(peer.read_message())
            peer.send(f"HTTP/1.1 {head}\r\n\r\n{body}")
            if close:
                return

    upstream.script = serve
    return requests


def get(client: Peer, path: str, headers: str = PAGE) -> Message:
    client.send(f"GET {PREFIX}{path} HTTP/1.1\r\n{HOST}{headers}\r\n")
    return client.read_message()


@pytest.mark.parametrize(
    ("head", "body", "close"),
    [
        (f"200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(HTML)}", HTML, False),
        (
            "200 OK\r\ncontent-type: Text/HTML\r\nTransfer-Encoding: chunked",
            f"{len(HTML):x}\r\n{HTML}\r\n0\r\n\r\n",
            False,
        ),
        ("200 OK\r\nContent-Type: text/html", HTML, True),
    ],
)
def test_a_page_gets_the_script_in_front_and_is_otherwise_the_same(
    ide: tuple[RunningProxy, ScriptedUpstream], head: str, body: str, close: bool
) -> None:
    proxy, upstream = ide
    requests = answering(upstream, head, body, close=close)
    with proxy.connect() as client:
        for path in ("/", "/?folder=/home/coder", "/lab/tree/a.ipynb") if not close else ("/",):
            answer = get(client, path)
            assert (answer.status, answer.body) == (200, INSERTED + HTML.encode())
    assert all("accept-encoding" not in {name.lower() for name, _ in one.headers} for one in requests)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/proxy/3000/", PAGE),  # an application of the user's
        ("/labs", PAGE),
        ("/", ""),  # a program
        ("/", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"),
        ("/", "Sec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n"),
    ],
)
def test_what_is_no_page_of_the_ide_is_left_alone_also_after_one_was_served(
    ide: tuple[RunningProxy, ScriptedUpstream], path: str, headers: str
) -> None:
    proxy, upstream = ide
    head = f"200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(HTML)}"
    requests = answering(upstream, head, HTML)
    with proxy.connect() as client:
        for _ in range(2):  # the heads of either are known the second time
            assert get(client, "/").body == INSERTED + HTML.encode()
            other = get(client, path, headers)
            assert (other.status, other.body) == (200, HTML.encode())
            assert ("gzip" in str(requests[-1].headers)) == ("gzip" in headers)


@pytest.mark.parametrize(
    "head",
    [
        f"200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(HTML)}",
        f"200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: {len(HTML)}",
        f"404 Not Found\r\nContent-Type: text/html\r\nContent-Length: {len(HTML)}",
        f"200 OK\r\nContent-Length: {len(HTML)}",
    ],
)
def test_an_answer_that_is_no_plain_page_is_left_alone(ide: tuple[RunningProxy, ScriptedUpstream], head: str) -> None:
    proxy, upstream = ide
    answering(upstream, head, HTML)
    with proxy.connect() as client:
        assert get(client, "/").body == HTML.encode()


# ── what the script asks for ─────────────────────────────────────────────────────────────────────────────────────────


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def test_the_script_learns_the_name_and_wakes_the_workspace_only_when_asked(here: World) -> None:
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    await put_in_state(here.database, workspace_id, phase="STANDBY", desired_state="STANDBY", name="thesis")
    own = f"/w/{workspace_id}/_codehub/"
    assert (await browser.get(own + "tab.js")).content == script()
    status = (await browser.get(own + "status")).json()
    assert (status["name"], status["go"], status["phase"]) == ("thesis", False, "STANDBY")
    assert status["dashboard"] == "http://127.0.0.1:8000/"
    assert (await browser.get(own + "wake")).status_code == 405
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY", "looking wakes nothing"

    foreign = await browser.post(own + "wake", headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    stranger = here.browser(workspace_id)
    assert (await stranger.post(own + "wake")).status_code == 401
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"

    woken = await browser.post(own + "wake", headers={"Origin": f"http://localhost:{here.port}"})
    assert (woken.status_code, woken.json()["desired_state"]) == (200, "RUNNING"), woken.text
    assert (await here.row(workspace_id))["desired_state"] == "RUNNING"


async def test_over_the_limit_the_page_is_told_and_nothing_is_woken(here: World) -> None:
    for _ in range(2):
        await here.workspace()
    workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
    browser = await here.signed_in(workspace_id)
    answer = await browser.post(f"/w/{workspace_id}/_codehub/wake")
    assert (answer.status_code, answer.json()["page"]) == (200, "limit")
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"


async def test_another_user_neither_wakes_a_workspace_nor_learns_its_name(here: World) -> None:
    workspace_id = await here.workspace(phase="STANDBY", desired_state="STANDBY")
    eve = await here.api.user("eve")
    made = await eve.post("/api/v1/tokens", json={"name": "t"})
    headers = {"Authorization": f"Bearer {made.json()['token']}", **NAVIGATION}
    for method, path in (("POST", "wake"), ("GET", "status")):
        answer = await here.browser().request(method, f"/w/{workspace_id}/_codehub/{path}", headers=headers)
        assert answer.status_code == 404
    assert (await here.row(workspace_id))["desired_state"] == "STANDBY"
