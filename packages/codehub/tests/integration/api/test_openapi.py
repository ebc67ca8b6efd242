"""schemathesis over the whole API, with valid and invalid data, as an administrator, a user and nobody: no server error,
and no answer that `/openapi.json` does not have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from codehub.domain.limits import RunningLimits
from testing.codehub import services
from testing.codehub.api import ADMIN
from testing.codehub.api_thread import api_in_a_thread


def no_fault_of_ours(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """502 is the backend's, which this API does not have; anything else from 500 on would be ours."""
    assert response.status_code < 500 or response.status_code == 502, response.text


CHECKS = [
    no_fault_of_ours,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Streams for ever; its refusals are tested with the others of its kind. Upgraded connections are tested with the doors.
LEFT_OUT = {"live_events", "attach_terminal", "ssh_stream", "tcp_stream"}
# These end the caller's own session when they succeed.
ENDS_THE_SESSION = {"logout"}
# One worker, so that API and schema are made once.
pytestmark = pytest.mark.xdist_group("openapi")
EXAMPLES = 200 if os.environ.get("CODEHUB_TEST_SOAK") == "1" else 4


@pytest.fixture(scope="module")
def address(_shared_postgres: Any) -> Iterator[str]:
    for url in services._made(_shared_postgres, services._TEMPLATE):
        with api_in_a_thread(url, config={"limits": RunningLimits(20, 100)}) as found:
            yield found


@pytest.fixture(scope="module")
def schema(address: str) -> Any:
    """Read once: schemathesis compiles the descriptions of all bodies and answers for each schema it loads."""
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


def signed_in(address: str, username: str, password: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    answer = session.post(f"{address}/api/v1/login", json={"username": username, "password": password}, timeout=90)
    assert answer.status_code == 200, answer.text
    session.headers["X-CodeHub-Session-Key"] = answer.json()["session_key"]
    return session


def test_openapi_has_no_422_and_names_every_route(address: str) -> None:
    described = httpx.get(f"{address}/openapi.json", trust_env=False).json()
    assert "422" not in json.dumps(described)
    assert "ValidationError" not in json.dumps(described)
    assert described["openapi"].startswith("3.1")
    paths = set(described["paths"])
    for path in (
        "/workspaces/{workspace_id}:start",
        "/workspaces/{workspace_id}/logs",
        "/workspaces/{workspace_id}/exec",
        "/workspaces/{workspace_id}/processes/{process_id}/output",
        "/workspaces/{workspace_id}/files/{path}",
        "/workspaces/{workspace_id}/files:edit",
        "/workspaces/{workspace_id}/terminals/{terminal_id}/attach",
        "/workspaces/{workspace_id}/ports/{port}/links",
        "/workspaces/{workspace_id}:keep-awake",
        "/events",
        "/tokens",
        "/users",
    ):
        assert f"/api/v1{path}" in paths
    for path in (
        "/_codehub/{workspace_id}/ssh",
        "/_codehub/{workspace_id}/tcp/{port}",
        "/health",
        "/health/ready",
        "/health/coordinator",
        "/metrics",
    ):
        assert path in paths
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert "503" in operation["responses"], path
            assert operation["operationId"]


class Caller:
    """Someone who calls, and signs in again when a call has ended the session."""

    def __init__(self, address: str, kind: str, mode: GenerationMode) -> None:
        self._address = address
        self._kind = kind
        self._username = f"{kind}-{mode.value}"
        admin = signed_in(address, *ADMIN)
        if kind != "nobody":
            body: dict[str, str | bool] = {
                "username": self._username,
                "password": f"{self._username}-password",
                "is_admin": kind == "administrator",
            }
            made = admin.post(f"{address}/api/v1/users", json=body, timeout=90)
            assert made.status_code == 201, made.text
        self.session = self.begin()
        owner = admin if kind == "nobody" else self.session
        self.workspaces = [_made(address, owner, number) for number in range(4)]

    def begin(self) -> requests.Session:
        if self._kind != "nobody":
            return signed_in(self._address, self._username, f"{self._username}-password")
        session = requests.Session()
        session.trust_env = False
        return session


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("administrator", GenerationMode.POSITIVE),
        ("administrator", GenerationMode.NEGATIVE),
        ("user", GenerationMode.POSITIVE),
        ("user", GenerationMode.NEGATIVE),
        ("nobody", GenerationMode.POSITIVE),
    ],
)
def test_every_answer_is_one_the_description_has(address: str, schema: Any, kind: str, mode: GenerationMode) -> None:
    caller = Caller(address, kind, mode)
    called = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in LEFT_OUT:
            continue
        if mode is GenerationMode.NEGATIVE and not _takes_data(operation):
            continue
        _ask(operation, caller, mode)
        called += 1
    assert called >= (30 if mode is GenerationMode.POSITIVE else 15)


def _ask(operation: Any, caller: Caller, mode: GenerationMode) -> None:
    checks = CHECKS + ([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])

    @seed(20_261_116)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), real=st.sampled_from(["", *caller.workspaces]))
    def ask(case: schemathesis.Case[Any], real: str) -> None:
        if real and mode is GenerationMode.POSITIVE and "workspace_id" in (case.path_parameters or {}):
            case.path_parameters["workspace_id"] = real
        if mode is GenerationMode.POSITIVE and any(item.name == "wake" for item in operation.query.items):
            case.query = {**(case.query or {}), "wake": False}  # there is no coordinator that would wake it
        answer = case.call(session=caller.session, timeout=90)
        case.validate_response(answer, checks=checks)
        assert answer.status_code != 422
        if operation.definition.raw["operationId"] in ENDS_THE_SESSION:
            caller.session = caller.begin()

    ask()


def _takes_data(operation: Any) -> bool:
    return bool(operation.body.items or operation.query.items or operation.path_parameters.items)


def _made(address: str, session: requests.Session, number: int) -> str:
    body: dict[str, str | bool] = {"name": f"n{number}", "start": number == 0}
    answer = session.post(f"{address}/api/v1/workspaces", json=body, timeout=90)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])
