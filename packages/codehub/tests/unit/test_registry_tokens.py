"""Tokens that registries give out: a repository names thousands of features, and few tokens are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpcore
import pytest

from codehub.adapters.registry.http import Answer, RegistryHttp

_CHALLENGE = {"www-authenticate": 'Bearer realm="https://registry.example/token"'}


async def test_few_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def once(
        self: RegistryHttp,
        pool: httpcore.AsyncConnectionPool,
        url: str,
        headers: Mapping[bytes | str, bytes | str],
        most: int,
    ) -> tuple[int, Answer]:
        if "/token" in url:
            return 200, Answer(json.dumps({"token": "t" * 60_000}).encode(), {})
        return (200, Answer(b"ok", {})) if "Authorization" in headers else (401, Answer(b"", _CHALLENGE))

    monkeypatch.setattr(RegistryHttp, "_once", once)
    # Without certificates, which take time to load.
    http = RegistryHttp(tls=httpcore.default_ssl_context())
    for number in range(200):
        assert (await http.get("registry.example", f"x/f{number}", "manifests/1", "*/*", 100)).body == b"ok"
    assert len(http._authorizations) <= 64
