"""When `codehub up` gives each workspace its own host below `.localhost`."""

from __future__ import annotations

import pytest

from codehub.cli.stack.hosts import LOCAL_PATTERN, with_own_hosts
from codehub.settings import load_settings


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"CODEHUB_API_BIND": "[::1]:9000", "CODEHUB_PROXY_BIND": "127.0.0.2:9001"},
        {"CODEHUB_PUBLIC_BASE_URL": "http://localhost:8000"},
        {"CODEHUB_WORKSPACE_BASE_URL": "http://localhost:8001"},
        {"CODEHUB_WORKSPACE_HOST": ""},
    ],
    ids=str,
)
def test_on_a_laptop_each_workspace_has_its_own_host(environment: dict[str, str]) -> None:
    assert with_own_hosts(load_settings(environment)).workspace_host == LOCAL_PATTERN


@pytest.mark.parametrize(
    "environment",
    [
        {"CODEHUB_WORKSPACE_HOST": "none"},
        {"CODEHUB_API_BIND": "0.0.0.0:8000"},
        {"CODEHUB_PROXY_BIND": "0.0.0.0:8001"},
        {"CODEHUB_PROXY_BIND": "192.0.2.1:8001"},
        {"CODEHUB_PUBLIC_BASE_URL": "https://codehub.example.org"},
        {"CODEHUB_WORKSPACE_BASE_URL": "https://ws.example.org"},
        {"CODEHUB_WORKSPACE_BASE_URL": "http://127.0.0.1:8001", "CODEHUB_PUBLIC_BASE_URL": "http://localhost:8000"},
    ],
    ids=str,
)
def test_elsewhere_and_on_request_workspaces_share_a_host(environment: dict[str, str]) -> None:
    assert with_own_hosts(load_settings(environment)).workspace_host == ""


def test_a_chosen_pattern_is_kept() -> None:
    chosen = load_settings({"CODEHUB_WORKSPACE_HOST": "*.ws.example.org"})
    assert with_own_hosts(chosen).workspace_host == "*.ws.example.org"
