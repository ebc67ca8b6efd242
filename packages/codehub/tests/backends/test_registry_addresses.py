"""Which addresses of a registry are connected to: only those that were looked up and checked, and each name once."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import NoReturn

import httpcore
import pytest

from codehub.adapters.registry.features import RegistryFeatures
from codehub.adapters.registry.http import RegistryHttp
from codehub.domain.errors import CodeHubError
from codehub.domain.feature_refs import FeatureRules, parse_feature_ref


@pytest.mark.parametrize(
    ("host", "named", "found", "connected"),
    [
        ("r.example", (), ["1.1.1.1"], ["1.1.1.1"]),
        ("r.example", (), ["1.1.1.1", "127.0.0.1"], []),
        ("r.example", (), ["10.0.0.1"], []),
        ("r.example", (), ["169.254.169.254"], []),
        # A private address is for hosts that the administrator wrote out, a link-local one never for a name.
        ("r.example", ("r.example",), ["10.0.0.1"], ["10.0.0.1"]),
        ("r.example", ("r.example",), ["169.254.169.254"], []),
        ("r.example:444", ("r.example:444",), ["10.0.0.1"], ["10.0.0.1"]),
        ("r.example:444", ("r.example",), ["10.0.0.1"], []),
        ("r.example", ("r.example:444",), ["10.0.0.1"], []),
    ],
)
async def test_a_name_is_looked_up_once_and_only_an_address_that_was_checked_is_connected(
    host: str,
    named: tuple[str, ...],
    found: list[str],
    connected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []
    seen: list[str] = []
    http = RegistryHttp(FeatureRules(tuple(f"{each}/*" for each in named)).named_hosts)

    async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    async def connect(_: object, host: str, *__: object) -> NoReturn:
        seen.append(host)
        raise httpcore.ConnectError("nothing leaves this machine")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    with pytest.raises(CodeHubError, match="nothing leaves" if connected else "has a private address"):
        await RegistryFeatures(http, tmp_path).fetch(parse_feature_ref(f"{host}/x:1"))
    assert (looked_up, seen) == (["r.example"], connected)
