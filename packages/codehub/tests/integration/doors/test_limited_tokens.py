"""A token of one workspace, as an agent in it has, reaches nothing else on any route, even if an administrator made it."""

from __future__ import annotations

import re

import httpx
import pytest

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
    upgraded = {path for path, found in paths.items() if any("101" in each["responses"] for each in found.values())}
    assert len(upgraded) == 3
    for path in upgraded:
        target = re.sub(r"\{[^}]*\}", "1", path.replace("{workspace_id}", other))
        headers = {"Authorization": f"Bearer {limited}", "Connection": "Upgrade"}
        if path.startswith("/_codehub/"):
            url, headers["Upgrade"] = doors.at_proxy(target), "codehub-stream"
        else:
            url = doors.stack.url + target
            headers |= {
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            }
        answer = httpx.get(url, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code in (401, 403, 404), (path, answer.status_code, answer.text)


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
            assert answer.status_code in (403, 404), (verb, answer.text)
    with doors.stack.client() as admin:
        assert admin.get("/api/v1/workspaces").json()["total"] == before
