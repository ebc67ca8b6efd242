"""Garbage in both framings, on stdin and on the daemon's port: no crash, no hang, bounded memory, the next call
answered.
"""

import contextlib
import json
import random
import socket
import threading

import pytest

from testing.sari.processes import peak_memory_of, wait_until
from testing.sari.shim import Shim, found_paths
from testing.sari.world import World

_MEGABYTE = 1024 * 1024


def _pieces(chance: random.Random) -> list[bytes]:
    """Messages that are wrong in every way, one after the other, each a line of its own."""
    nasty = [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[[[[",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":"v1","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"m","method":7}',
        b'{"jsonrpc":"2.0","id":"p","method":"tools/call","params":[1]}',
        b'{"jsonrpc":"2.0","id":"t1","method":"tools/call","params":{"name":7}}',
        b'{"jsonrpc":"2.0","id":"t2","method":"tools/call","params":{"name":"search","arguments":"x"}}',
        b'{"jsonrpc":"2.0","id":"t3","method":"tools/call","params":{"name":"search","_meta":7}}',
        b'{"jsonrpc":"2.0","id":"t4","method":"tools/call","params":{"name":"nothing"}}',
        b'{"jsonrpc":"2.0","id":"u","method":"\\ud800"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","id":"x","result":{}}',
        b"[" * 20_000,
        b'{"jsonrpc":"2.0","id":' + b"9" * 6_000 + b',"method":"ping"}',
        b"\xff\xfe\x00\x01",
    ]
    garbage = [chance.randbytes(chance.randrange(1, 400)).replace(b"\n", b"?") for _ in range(100)]
    good = b'{"jsonrpc":"2.0","id":"g","method":"tools/list","params":{}}'
    cut = [good[: chance.randrange(len(good))] for _ in range(50)]
    flipped = []
    for _ in range(100):
        changed = bytearray(good)
        changed[chance.randrange(len(changed))] = chance.randrange(256)
        flipped.append(bytes(changed).replace(b"\n", b"?"))
    pieces = nasty + garbage + cut + flipped
    chance.shuffle(pieces)
    return pieces


def _still_works(shim: Shim) -> None:
    request = shim.ask("tools/call", {"name": "search", "arguments": {"query": "needle"}}, "still-works")
    answer = shim.answer(request)
    assert found_paths(answer["result"]) == ["hello.txt"]  # type: ignore[arg-type]
    assert shim.process.poll() is None
    assert shim.stray == []


class Tolerant(Shim):
    """Garbage may hold the same id twice: then there are two answers to it."""

    def _take(self, item: object) -> None:
        with self._changed:
            message = json.loads(item) if isinstance(item, bytes) else {}
            self._answers.pop(message.get("id") if isinstance(message, dict) else None, None)
        super()._take(item)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_a_shim_survives_garbage_in_lines(world: World, seed: int) -> None:
    shim = Tolerant(world.environ, world.workspace("project"))
    world.shims.append(shim)
    shim.send_bytes(b"{}\n" + b"\n".join(_pieces(random.Random(seed))) + b"\n")
    _still_works(shim)


@pytest.mark.parametrize("seed", range(3))
def test_a_shim_survives_garbage_with_headers(world: World, seed: int) -> None:
    chance = random.Random(seed)
    shim = Tolerant(world.environ, world.workspace("project"), uses_headers=True)
    world.shims.append(shim)
    for piece in _pieces(chance):
        header = chance.choice(
            [
                b"Content-Length: %d\r\n\r\n" % len(piece),
                b"content-length:%d\nX-Other: 1\n\n" % len(piece),
                b"Content-Length: x\r\n\r\n",
                b"Content-Length: -1\r\n\r\n",
                b"Content-Type: none\r\n\r\n",
            ]
        )
        shim.send_bytes(header + piece)
    # What was lost is found again at the next header.
    shim.send_bytes(b"\r\n\r\n")
    _still_works(shim)


@pytest.mark.parametrize("uses_headers", [False, True], ids=["lines", "headers"])
def test_a_message_of_a_hundred_megabytes_is_refused_in_bounded_memory(world: World, uses_headers: bool) -> None:
    shim = world.shim(world.workspace("project"), uses_headers=uses_headers)
    shim.initialize()
    size = 100 * _MEGABYTE
    if uses_headers:
        shim.send_bytes(b"Content-Length: %d\r\n\r\n" % size)
    block = b"x" * _MEGABYTE
    for _ in range(100):
        shim.send_bytes(block)
    if not uses_headers:
        shim.send_bytes(b"\n")
    _still_works(shim)
    refusals = [one for one in shim.others if "error" in one]
    assert len(refusals) == 1
    assert "larger than 16 MB" in str(refusals[0])
    assert peak_memory_of(shim.pid) < 80 * _MEGABYTE


def test_the_daemon_survives_garbage_on_its_port(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    shim.call("search", {"query": "needle"})
    daemon = world.one_daemon()
    entry = next(iter(world.registry()["daemons"].values()))
    identify = {"jsonrpc": "2.0", "id": 1, "method": "sari/identify", "params": {"token": entry["token"]}}
    session = {"jsonrpc": "2.0", "id": 2, "method": "sari/session", "params": {"session": "f", "roots": [7, "/"]}}

    def assault(seed: int) -> None:
        chance = random.Random(seed)
        trusted = json.dumps(identify).encode() + b"\n" + json.dumps(session).encode() + b"\n"
        with contextlib.suppress(OSError), socket.create_connection((entry["host"], entry["port"]), 30) as sock:
            sock.sendall((trusted if seed % 2 else b"") + b"\n".join(_pieces(chance)) + b"\n")
            sock.sendall(b"x" * (2 * _MEGABYTE))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass

    threads = [threading.Thread(target=assault, args=(seed,), daemon=True) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    _still_works(shim)
    assert world.one_daemon() == daemon
    assert peak_memory_of(daemon) < 300 * _MEGABYTE
    wait_until(lambda: len(json.loads(world.sari("status", "--json").stdout)["sessions"]) == 1, "one session left")
