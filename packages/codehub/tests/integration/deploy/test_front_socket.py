"""nginx in front of a whole CodeHub, connected through Unix sockets: it alone says where a request comes from."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from codehub.adapters.front_socket import listen_front
from codehub.domain.errors import Invalid
from testing.codehub.doors import Doors, open_doors
from testing.codehub.edge import DASHBOARD_HOST, WORKSPACE_HOST, Edge, nginx
from testing.codehub.full_stack import fresh_stack

FORGED = "203.0.113.9"


@pytest.fixture(scope="module")
def front() -> Iterator[tuple[Doors, Path]]:
    """A CodeHub with a workspace, and the directory of its sockets."""
    with fresh_stack() as stack:
        sockets = stack.data_dir / "front"
        sockets.mkdir()
        # CodeHub's user may write there, and its sockets get the directory's group.
        sockets.chmod(0o2777)
        stack.with_tiny_ide()
        stack.environment |= {
            "CODEHUB_API_SOCKET": str(sockets / "api.sock"),
            "CODEHUB_PROXY_SOCKET": str(sockets / "proxy.sock"),
        }
        stack.up()
        yield open_doors(stack), sockets


class _ToEdge(httpx.AsyncHTTPTransport):
    """All host names are the edge on this machine."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(verify=edge.trust)
        self._port = edge.port

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = request.url.copy_with(host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)


def at(edge: Edge, host: str, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=_ToEdge(edge), base_url=f"https://{host}", headers=headers, timeout=90)


async def address_of_session(client: httpx.AsyncClient, password: str, **headers: str) -> str:
    """Sign in, and return the address from which CodeHub says that was."""
    signed_in = await client.post("/api/v1/login", json={"username": "admin", "password": password}, headers=headers)
    assert signed_in.status_code == 200, signed_in.text
    key = {"X-CodeHub-Session-Key": signed_in.json()["session_key"]}
    sessions = (await client.get("/api/v1/sessions", headers=key)).json()["items"]
    (address,) = [session["address"] for session in sessions if session["current"]]
    return str(address)


@pytest.mark.needs("openssl", "nginx")
async def test_dashboard_workspaces_and_terminals_work_through_the_sockets(
    front: tuple[Doors, Path], tmp_path: Path
) -> None:
    doors, sockets = front
    token = f"Bearer {doors.token}"
    async with nginx(tmp_path, f"unix:{sockets}/api.sock", f"unix:{sockets}/proxy.sock") as edge:
        async with at(edge, WORKSPACE_HOST, Authorization=token) as browser:
            page = await browser.get(f"/w/{doors.workspace_id}/healthz")
            assert page.status_code == 200, page.text
        async with at(edge, DASHBOARD_HOST, Authorization=token) as browser:
            made = await browser.post(f"{doors.api}/terminals", json={"command": ["cat"]})
            assert made.status_code == 201, made.text
        address = f"wss://{DASHBOARD_HOST}{doors.api}/terminals/{made.json()['id']}/attach"
        async with (
            asyncio.timeout(90),
            connect(
                address,
                host="127.0.0.1",
                port=edge.port,
                ssl=edge.trust,
                server_hostname=DASHBOARD_HOST,
                proxy=None,
                additional_headers={"Authorization": token},
            ) as terminal,
        ):
            assert isinstance(await terminal.recv(), bytes)


async def test_addresses_are_believed_on_the_socket_and_not_on_the_port(front: tuple[Doors, Path]) -> None:
    doors, sockets = front
    host = httpx.URL(doors.stack.url).netloc.decode()
    through = httpx.AsyncHTTPTransport(uds=str(sockets / "api.sock"))
    async with httpx.AsyncClient(transport=through, base_url=f"http://{host}", timeout=90) as proxied:
        assert await address_of_session(proxied, doors.stack.password(), **{"X-Forwarded-For": FORGED}) == FORGED
    async with httpx.AsyncClient(base_url=doors.stack.url, timeout=90, trust_env=False) as direct:
        forged = await address_of_session(direct, doors.stack.password(), **{"X-Forwarded-For": FORGED})
        assert forged == "127.0.0.1"


@pytest.mark.needs("root")
def test_only_the_group_of_the_directory_may_connect(front: tuple[Doors, Path]) -> None:
    _, sockets = front
    for name in ("api.sock", "proxy.sock"):
        shown = (sockets / name).stat()
        assert stat.S_IMODE(shown.st_mode) == 0o660
        assert shown.st_gid == sockets.stat().st_gid
        assert shown.st_uid != 0, "API and proxy are not root"


def test_a_new_process_replaces_the_socket_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with listen_front(path, "NAME") as first, listen_front(path, "NAME") as second:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            second.accept()[0].close()
        with pytest.raises(BlockingIOError):
            first.accept()
    assert os.listdir(tmp_path) == ["api.sock"]


def test_a_file_that_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(Invalid, match="not a socket"):
        listen_front(path, "CODEHUB_API_SOCKET")
    with pytest.raises(Invalid, match=r"CODEHUB_API_SOCKET=.*cannot listen there"):
        listen_front(tmp_path / "missing" / "api.sock", "CODEHUB_API_SOCKET")
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["notes"]
