"""An IDE that its workspace replaced, and that answers CodeHub's health probe with anything but HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from codehub.adapters.health import answers
from codehub.domain.profiles import AppProfile
from codehub.ports.instances import Upstream

PROFILE = AppProfile("ide")
UNHEALTHY = {
    "a number that Python refuses": b"HTTP/1.1 1" + b"0" * 5000 + b" OK\r\n",
    "a large number": b"HTTP/1.1 200000 OK\r\n",
    "an error": b"HTTP/1.1 500 Oops\r\n",
    "no number": b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n",
    "an endless line": b"HTTP/1.1 200" + b"0" * 200_000,
    "another protocol": b"SSH-2.0-x\r\n",
    "nothing": b"",
}


async def is_healthy(place: Path, answer: bytes) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    path = str(place / "ide.sock")
    async with asyncio.timeout(60), await asyncio.start_unix_server(serve, path):
        return await answers(Upstream("i-1", socket_path=path, uid=os.getuid()), "w-1", PROFILE)


@pytest.mark.parametrize("what", UNHEALTHY)
async def test_any_answer_but_an_http_status_is_unhealthy_and_no_error(tmp_path: Path, what: str) -> None:
    assert await is_healthy(tmp_path, UNHEALTHY[what]) is False


@pytest.mark.parametrize("status", [b"200 OK", b"302", b"404 Not Found", b"101 Switching Protocols"])
async def test_any_status_below_500_is_healthy(tmp_path: Path, status: bytes) -> None:
    assert await is_healthy(tmp_path, b"HTTP/1.1 " + status + b"\r\n\r\n") is True
