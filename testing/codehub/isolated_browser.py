"""A Chromium in a network of its own, which leads to a few ports of this one.

Chromium fails requests with ERR_NETWORK_CHANGED whenever an interface appears or disappears, and on the Kubernetes node
every Pod has one. In here there is nothing but the loopback interface.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from testing.browser import CHROMIUM, launch

# Listens in the browser's network, and connects from the network that the descriptor in its first argument names: a socket
# stays in the network in which it was opened.
_RELAY = """
import asyncio, contextlib, ctypes, socket, sys
outside, *ports = map(int, sys.argv[1:])
listeners = [(port, socket.create_server(("127.0.0.1", port))) for port in ports]
CLONE_NEWNET = 0x40000000
assert ctypes.CDLL(None, use_errno=True).setns(outside, CLONE_NEWNET) == 0, ctypes.get_errno()

async def pump(reader, writer):
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

async def carry(port, reader, writer):
    try:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, ours), pump(theirs, writer))
    for one in (ours, writer):
        one.close()

async def main():
    for port, listener in listeners:
        await asyncio.start_server(lambda r, w, port=port: carry(port, r, w), sock=listener)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def isolated_chromium(*ports: int) -> AsyncIterator[Browser]:
    """Yield a browser whose only network is 127.0.0.1 with these ports of this network's 127.0.0.1."""
    with _network(ports) as program:
        async with async_playwright() as playwright:
            started = await launch(playwright, str(program))
            try:
                yield started
            finally:
                await started.close()


@contextlib.contextmanager
def _network(ports: tuple[int, ...]) -> Iterator[Path]:
    """Yield a program that runs Chromium in a new network."""
    name = f"ch-browser-{uuid.uuid4().hex[:8]}"
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "set", "lo", "up")
            words = [sys.executable, "-c", _RELAY, str(outside), *map(str, ports)]
            command = ["ip", "netns", "exec", name, *words]
            with (
                subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(outside,)) as relay,
                tempfile.TemporaryDirectory() as folder,
            ):
                try:
                    assert relay.stdout is not None
                    assert relay.stdout.readline() == b"ready\n"
                    program = Path(folder) / "chromium"
                    program.write_text(f'#!/bin/sh\nexec ip netns exec {name} {CHROMIUM} "$@"\n')
                    program.chmod(0o755)
                    yield program
                finally:
                    relay.kill()
        finally:
            _ip("netns", "del", name)
    finally:
        os.close(outside)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
