"""A token of one workspace, as an agent in it has, reaches nothing else on any route, even if an administrator made it."""

from __future__ import annotations

import re

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from testing.codehub.doors import Doors

# What says nothing but who the token belongs to, or is there for everybody.
OPEN = re.compile(r"/api/v1/(session|whoami|login|about)|/health.*|/metrics|/api/v1/openapi.json|/whoami")


@pytest.fixture
def limited(doors: Doors) -> str:
    with doors.stack.client() as admin:
        made = admin.post("/api/v1/tokens", json={"name": "agent", "workspace_id": doors.workspace_id})
        assert made.status_code == 201, made.text
        return str(made.json()["token"])


def test_no_route_outside_the_workspace_answers(doors: Doors, limited: str) -> None:
    with doors.stack.client() as admin:
        paths = admin.get("/openapi.json").json()["paths"]
        other = admin.post("/api/v1/workspaces", json={"name": "not-yours", "start": False}).json()["id"]
    assert len(paths) > 50
    opened = []
    with doors.client(limited) as client:
        for path, operations in paths.items():
            for method in operations:
                target = re.sub(r"\{[^}]*\}", "1", path.replace("{workspace_id}", other))
                if OPEN.fullmatch(path) or "101" in operations[method]["responses"]:
                    continue
                answer = client.request(method.upper(), target)
                if answer.status_code != 403:
                    opened.append((method, path, answer.status_code))
    assert opened == []


def test_no_connection_to_another_workspace_is_upgraded(doors: Doors, limited: str) -> None:
    with doors.stack.client() as admin:
        paths = admin.get("/openapi.json").json()["paths"]
        other = admin.post("/api/v1/workspaces", json={"name": "not-yours-either", "start": False}).json()["id"]
    token = {"Authorization": f"Bearer {limited}"}
    upgraded = {path for path, found in paths.items() if any("101" in each["responses"] for each in found.values())}
    streams = {path for path in upgraded if path.startswith("/_codehub/")}
    for path in streams:
        target = re.sub(r"\{[^}]*\}", "1", path.replace("{workspace_id}", other))
        headers = {**token, "Connection": "Upgrade", "Upgrade": "codehub-stream"}
        answer = httpx.get(doors.at_proxy(target), headers=headers, timeout=60, trust_env=False)
        assert answer.status_code in (401, 403), (path, answer.status_code, answer.text)
        # The same request to the token's own workspace is admitted.
        own = re.sub(r"\{[^}]*\}", "1", path.replace("{workspace_id}", doors.workspace_id))
        with httpx.stream("GET", doors.at_proxy(own), headers=headers, timeout=60, trust_env=False) as admitted:
            assert admitted.status_code not in (401, 403, 404), (path, admitted.status_code)
    # A browser cannot read why a handshake failed, so a WebSocket is accepted and closed with the reason.
    (terminal,) = upgraded - streams
    target = terminal.replace("{workspace_id}", other).replace("{terminal_id}", "1")
    address = doors.stack.url.replace("http", "ws", 1) + target
    with connect(address, additional_headers=token, proxy=None) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403


def test_it_makes_no_other_workspaces_and_does_nothing_that_administrators_do(doors: Doors, limited: str) -> None:
    with doors.stack.client() as admin:
        before = admin.get("/api/v1/workspaces").json()["total"]
    with doors.client(limited) as client:
        for verb, body in (
            ("duplicate", {"name": "copy", "start": False}),
            ("continue-from-archive", None),
            ("transfer", {"username": "admin"}),
            ("recover", {"archive_key": "x"}),
        ):
            answer = client.post(f"{doors.api}:{verb}", json=body)
            assert answer.status_code == 403, (verb, answer.text)
    with doors.stack.client() as admin:
        assert admin.get("/api/v1/workspaces").json()["total"] == before
