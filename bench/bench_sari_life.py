"""How fast sari's life is: starting, first answers, latency, memory, the pause of a hand-over; beside its
predecessor.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from testing.sari.parts import python_part
from testing.sari.processes import memory_of, wait_until
from testing.sari.shim import INITIALIZE, Shim
from testing.sari.world import World, new_world

Row = dict[str, object]
_ROUNDS = 15
_CALLS = 500
_CLIENTS = 50


def measure() -> list[Row]:
    """All rows."""
    return [*_start(), *_latency(), *_memory(), *_hand_over(), *_predecessor()]


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def _row(what: str, value: float, unit: str, **more: object) -> Row:
    return {"what": what, "value": round(value, 2), "unit": unit, **more}


def _bare() -> float:
    return statistics.median(
        _timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(_ROUNDS)
    )


def _until_initialized(world: World, root: Path) -> float:
    holder: list[Shim] = []

    def begin() -> None:
        holder.append(world.shim(root))
        holder[0].request("initialize", INITIALIZE)

    took = _timed(begin)
    holder[0].kill()
    return took


def _until_answered(world: World, root: Path) -> float:
    holder: list[Shim] = []

    def begin() -> None:
        holder.append(world.shim(root))
        holder[0].initialize()
        holder[0].call("search", {"query": "needle"})

    took = _timed(begin)
    holder[0].kill()
    return took


def _start() -> list[Row]:
    bare = _bare()
    with new_world() as world:
        root = world.workspace("project")
        open_client = world.shim(root)
        open_client.initialize()
        open_client.call("search", {"query": "needle"})
        warm = statistics.median(_until_initialized(world, root) for _ in range(_ROUNDS))
        warm_call = statistics.median(_until_answered(world, root) for _ in range(_ROUNDS))
        open_client.kill()
        cold, cold_call = [], []
        for _ in range(_ROUNDS // 2):
            world.sari("daemon", "stop")
            cold.append(_until_initialized(world, root))
            world.sari("daemon", "stop")
            cold_call.append(_until_answered(world, root))
    return [
        _row("bare `python -c pass`", bare, "ms"),
        _row("start → initialize answered, daemon warm, above bare", warm - bare, "ms", peer="python", ceiling=60),
        _row("start → initialize answered, no daemon, above bare", statistics.median(cold) - bare, "ms", ceiling=60),
        _row("start → first search answered, daemon warm", warm_call, "ms"),
        _row("start → first search answered, no daemon", statistics.median(cold_call), "ms"),
    ]


def _direct(world: World, root: Path) -> list[float]:
    entry = next(iter(world.registry()["daemons"].values()))
    with socket.create_connection((entry["host"], entry["port"])) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = sock.makefile("rwb")

        def ask(number: int, method: str, params: Row) -> None:
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            file.write(json.dumps(message).encode() + b"\n")
            file.flush()
            file.readline()

        ask(1, "sari/identify", {"token": entry["token"]})
        ask(2, "sari/session", {"session": "bench", "client": "bench", "roots": [str(root)], "idle_s": 0})
        call: Row = {"name": "status", "arguments": {}, "_meta": {"sari/root": str(root)}}
        return [_timed(lambda n=n: ask(n + 3, "tools/call", call)) for n in range(_CALLS)]  # type: ignore[misc]


def _latency() -> list[Row]:
    with new_world() as world:
        root = world.workspace("project")
        shim = world.shim(root)
        shim.initialize()
        shim.call("status", {})
        through = [_timed(lambda: shim.call("status", {})) for _ in range(_CALLS)]
        direct = _direct(world, root)
    rows = []
    for name, rank in (("p50", 0.5), ("p99", 0.99)):
        one, other = _quantile(through, rank), _quantile(direct, rank)
        what = f"call through the shim, {name}"
        rows.append(_row(what, one, "ms", peer=f"direct socket {other:.2f} ms", ratio=round(one / other, 2)))
    return rows


def _quantile(values: list[float], rank: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * rank))]


def _memory() -> list[Row]:
    with new_world() as world:
        root = world.workspace("project")
        for _ in range(_CLIENTS):
            shim = world.shim(root)
            shim.initialize()
            shim.call("status", {})
        shims = [memory_of(shim.pid) / 1e6 for shim in world.shims]
        daemon = memory_of(world.one_daemon()) / 1e6
    return [
        _row(f"memory of one shim of {_CLIENTS} (its share)", statistics.median(shims), "MB"),
        _row(f"memory of the daemon with {_CLIENTS} clients", daemon, "MB"),
    ]


def _hand_over() -> list[Row]:
    with new_world() as world:
        root = world.workspace("project")
        shim = world.shim(root)
        shim.initialize()
        shim.call("status", {})
        longest = []
        for _ in range(5):
            before = world.one_daemon()
            restart = subprocess.Popen(
                [str(Path(sys.executable).with_name("sari")), "daemon", "restart"],
                env=world.environ,
                stdout=subprocess.DEVNULL,
            )
            pauses = []
            while restart.poll() is None or before in world.daemons():
                pauses.append(_timed(lambda: shim.call("status", {})))
            longest.append(max(pauses))
            wait_until(lambda: len(world.daemons()) == 1, "the old daemon is gone")
    return [_row("longest pause of a client during a hand-over", statistics.median(longest), "ms")]


def _predecessor() -> list[Row]:
    """What `sari==0.1.26` needs from its start to `initialize` answered, with its daemon running."""
    old = str(python_part("sari0") / "bin/sari")
    with new_world() as world:
        root = world.workspace("project")
        world.environ.pop("SARI_DAEMON_PORT")
        times = []
        for _ in range(6):
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {**INITIALIZE, "rootUri": root.as_uri()},
            }
            begun = time.perf_counter()
            process = subprocess.Popen(
                [old, "--transport", "stdio"],
                cwd=root,
                env={**world.environ, "SARI_WORKSPACE_ROOT": str(root)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            answered = process.stdout.readline()
            times.append((time.perf_counter() - begun) * 1000)
            process.kill()
            process.communicate()
            if not answered:
                return [_row("predecessor: it answers no initialize here", 0, "ms")]
    # The first one starts its daemon.
    return [_row("predecessor: start → initialize answered, daemon warm", statistics.median(times[1:]), "ms")]
