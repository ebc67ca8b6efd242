"""Warm for everybody: `sari search` in a shell, a fresh MCP session and a workspace that is opened again, beside ripgrep.

Every time includes starting the process that asks, as a user's shell or an agent's client does. The peer is `rg` with the
same pattern on the same tree, in turns with sari, so that both see the same machine.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sari.index.ripgrep import PROGRAM
from sari.install.launcher import program_text
from testing.sari import trees
from testing.sari.world import World, new_world

Row = dict[str, object]

_QUERIES = {
    "rare literal": (["unique_000777_fn"], ["-F", "unique_000777_fn"]),
    "word, 20 files": (["-w", "handler_78"], ["-wF", "handler_78"]),
    "absent": (["zqxjkvzqnot"], ["-F", "zqxjkvzqnot"]),
}
_ROUNDS = 15
_REOPENED = 7
# How long to wait until the daemon rests. Parsing 90,000 files takes longer, at a low priority.
_REST_S = 60.0
# Closing 90,000 files waits for workers that are parsing, which have a low priority.
_CLOSE_S = 300.0


def _installed() -> str:
    """Write the command as an installation does. Lines go to /dev/null, as if to a terminal, unless said otherwise."""
    program = Path(tempfile.mkdtemp(prefix="sari-command-"), "sari")
    program.write_text(program_text(Path(sys.prefix), Path(sys.executable)))
    program.chmod(0o755)
    return str(program)


SARI = _installed()


def measure() -> list[Row]:
    """All rows."""
    rows = _starting()
    for files in (7_000, 90_000):
        scratch = Path(tempfile.mkdtemp(prefix=f"sari-warm-{files}-"))
        try:
            root = trees.generated(scratch / "tree", files)
            (root / ".git").mkdir()
            rows += on_a_tree(root, files)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return rows


def on_a_tree(root: Path, files: int) -> list[Row]:
    """The rows for one tree: warm in a shell, a fresh session, opened again."""
    label = f"{files // 1000}k files"
    with new_world() as world:
        world.open_workspace(root)
        _wait_for_rest(world)
        rows = [row for name in _QUERIES for row in _in_a_shell(world, root, label, name, files)]
        rows += _fresh_session(world, root, label, files)
        # From now on, a workspace is closed by the heartbeat after the call that used it.
        world.environ |= {"SARI_WORKSPACE_IDLE_SEC": "0", "SARI_HEARTBEAT_SEC": "0.2"}
        world.sari("daemon", "stop")
        rows += _reopened(world, root, label, files)
    return rows


def _starting() -> list[Row]:
    """What the interpreter and the imports cost, without a daemon."""
    bare, searching = [], []
    for _ in range(_ROUNDS):
        bare.append(_timed([sys.executable, "-c", "pass"]))
        searching.append(_timed([SARI, "search", "--help"]))
    above = (statistics.median(searching) - statistics.median(bare)) * 1000
    return [
        {
            "what": "`sari search --help`, above `python -c pass`",
            "value": above,
            "unit": "ms",
            "peer": f"python {statistics.median(bare) * 1000:.0f} ms",
            "floor": "≤ 120",
        }
    ]


def _in_a_shell(world: World, root: Path, label: str, name: str, files: int) -> list[Row]:
    words, flags = _QUERIES[name]
    ours, theirs = _in_turns(
        lambda: _timed([SARI, "search", *words], root, world.environ), lambda: _timed(_rg(flags), root)
    )
    floor = "≥ 10" if files >= 90_000 else "≥ 1"
    return [_row(f"{label}: `sari search`, {name}", ours, theirs, floor)]


def _fresh_session(world: World, root: Path, label: str, files: int) -> list[Row]:
    words = _QUERIES["rare literal"][0]
    whole: list[float] = []
    from_call: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        shim = world.shim(root, sari=SARI)
        shim.initialize()
        initialized = time.perf_counter()
        shim.call("search", {"query": words[0]})
        answered = time.perf_counter()
        shim.kill()
        whole.append(answered - began)
        from_call.append(answered - initialized)
    goal = {"floor": "≤ 50"} if files >= 90_000 else {}
    return [
        {
            "what": f"{label}: fresh MCP session, first call → answer",
            "value": statistics.median(from_call) * 1000,
            "unit": f"ms p50 (slowest {max(from_call) * 1000:.0f})",
            **goal,
        },
        {
            "what": f"{label}: fresh MCP session, process started → first answer",
            "value": statistics.median(whole) * 1000,
            "unit": f"ms p50 (slowest {max(whole) * 1000:.0f})",
            **goal,
        },
    ]


def _reopened(world: World, root: Path, label: str, files: int) -> list[Row]:
    words, flags = _QUERIES["rare literal"]

    def reopen() -> float:
        _wait_prepared(world)
        _wait_closed(world)
        return _timed([SARI, "search", *words], root, world.environ)

    reopen()
    ours, theirs = _in_turns(reopen, lambda: _timed(_rg(flags), root), _REOPENED)

    def restart() -> float:
        _wait_prepared(world)
        world.sari("daemon", "stop")
        return _timed([SARI, "search", *words], root, world.environ)

    cold, cold_theirs = _in_turns(restart, lambda: _timed(_rg(flags), root), _REOPENED)

    def restart_in_a_pipe() -> float:
        _wait_prepared(world)
        world.sari("daemon", "stop")
        return _timed([SARI, "search", *words], root, world.environ, subprocess.PIPE)

    piped, piped_theirs = _in_turns(
        restart_in_a_pipe, lambda: _timed(_rg(flags), root, stdout=subprocess.PIPE), _REOPENED
    )
    return [
        _row(f"{label}: opened again → first complete answer", ours, theirs, "≥ 1"),
        _row(f"{label}: the same, and no daemon runs", cold, cold_theirs, "≥ 1"),
        _row(f"{label}: the same in a pipe", piped, piped_theirs, ""),
    ]


def _wait_prepared(world: World) -> None:
    """Wait until no process opens the workspace after a search that did not wait for it."""
    while any(b"warm_up" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in world.processes()):
        time.sleep(0.1)


def _wait_closed(world: World) -> None:
    """Wait until the running daemon has closed every workspace. The registry remembers a closed one, the log tells."""
    deadline = time.monotonic() + _CLOSE_S
    while time.monotonic() < deadline:
        if not world.processes():
            return
        # A daemon that was stopped may have ended before a workspace was closed: only the newest log counts.
        logs = [path for path in (world.data / "logs").glob("daemon-*.log") if path.stem != "daemon-stderr"]
        log = max(logs, key=lambda path: path.stat().st_mtime).read_text()
        if log.count("workspace opened") == log.count("workspace closed"):
            return
        time.sleep(0.1)
    raise TimeoutError("the workspace stays open")


def _wait_for_rest(world: World) -> None:
    """Wait until the index is built and the daemon's processes use no CPU."""
    deadline = time.monotonic() + _REST_S
    used, quiet = -1.0, 0
    while time.monotonic() < deadline and quiet < 3:
        now = _cpu_s(world)
        quiet = quiet + 1 if now - used < 0.02 else 0
        used = now
        time.sleep(1.0)


def _cpu_s(world: World) -> float:
    total = 0.0
    for pid in world.processes():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def _rg(flags: list[str]) -> list[str]:
    return [PROGRAM, "--no-config", "--hidden", "--glob", "!.git", *flags, "./"]


def _in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int = _ROUNDS
) -> tuple[list[float], list[float]]:
    mine, peers = [], []
    theirs()
    for _ in range(rounds):
        mine.append(ours())
        peers.append(theirs())
    return mine, peers


def _row(what: str, ours: list[float], theirs: list[float], floor: str) -> Row:
    mine, peer = statistics.median(ours), statistics.median(theirs)
    return {
        "what": what,
        "value": mine * 1000,
        "unit": f"ms p50 (slowest {max(ours) * 1000:.0f})",
        "peer": f"ripgrep {peer * 1000:.0f} ms",
        "ratio": peer / mine,
        "floor": floor,
    }


def _timed(
    command: list[str],
    root: Path | None = None,
    environ: dict[str, str] | None = None,
    stdout: int = subprocess.DEVNULL,
) -> float:
    began = time.perf_counter()
    # Without a timeout: to wait with one, `subprocess` polls, and from 64 ms on only every 50 ms.
    subprocess.run(command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=stdout, check=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(on_a_tree(Path(sys.argv[1]), int(sys.argv[2])), indent=1, ensure_ascii=False))
