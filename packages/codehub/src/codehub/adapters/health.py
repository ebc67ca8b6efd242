"""Probes an IDE's health path once, over TCP or a Unix socket. Keeps no connection open."""

from __future__ import annotations

import asyncio
import contextlib
import re

from codehub.adapters.workspace_socket import open_workspace_socket
from codehub.domain.profiles import AppProfile
from codehub.domain.routing import workspace_path
from codehub.ports.instances import Upstream

_BELOW_500 = re.compile(rb"(?!100)[1-4][0-9][0-9]")
_TIMEOUT_S = 5.0  # of one probe; the caller decides how often to probe


async def answers(upstream: Upstream, workspace_id: str, profile: AppProfile) -> bool:
    """Return whether `GET health_path` gets any answer below 500.

    A redirect or a refusal also comes from a working IDE.
    """
    path = (
        profile.health_path
        if profile.strip_prefix
        else workspace_path(workspace_id).rstrip("/") + profile.health_path
    )
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", "User-Agent: codehub-probe"]
    if upstream.secret is not None:
        lines.append(f"{upstream.secret[0]}: {upstream.secret[1]}")
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await _connect(upstream)
            try:
                writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
                status = (await reader.readline()).split(b" ")
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return False
    # Not by int(): Python refuses to read numbers of thousands of digits.
    return (
        len(status) >= 2 and status[0].startswith(b"HTTP/1.") and _BELOW_500.fullmatch(status[1].rstrip()) is not None
    )


async def _connect(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if upstream.socket_path:
        connected = await open_workspace_socket(upstream.socket_path, upstream.uid)
        return await asyncio.open_unix_connection(sock=connected)
    return await asyncio.open_connection(upstream.host, upstream.port)


def secret_of(profile: AppProfile, secret: str) -> tuple[str, str] | None:
    """Return the header that the proxy adds, if the profile has one."""
    name, colon, value = profile.secret_header.partition(":")
    return (name.strip(), value.strip().replace("{secret}", secret)) if colon else None


def filled(text: str, values: dict[str, str]) -> str:
    """Fill in the profile's placeholders. Other braces stay unchanged."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text
