"""Another machine in a network that the test created."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

_numbers = itertools.count()


@contextlib.contextmanager
def elsewhere(address: str, host_address: str) -> Iterator[int]:
    """Another machine: a network namespace at the other end of a veth pair, with a service."""
    number = f"{os.getpid() % 100000}{next(_numbers)}"
    name, near, far = f"ch-{number}", f"cha{number}", f"chb{number}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("addr", "add", f"{host_address}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"{address}/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        code = (
            "import socket\ns = socket.create_server(('0.0.0.0', 8081))\nprint('up', flush=True)\n"
            "while True: s.accept()[0].sendall(b'hello')"
        )
        command = ["ip", "netns", "exec", name, sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            try:
                yield 8081
            finally:
                child.kill()
    finally:
        subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)
        ip("netns", "del", name)
