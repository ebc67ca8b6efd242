"""Idle means idle: a program at work keeps its workspace awake and is named; what only waits does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from testing.codehub.doors import Doors, Runtime, on_processes, open_doors
from testing.codehub.full_stack import TIMEOUT_S, fresh_stack
from testing.codehub.laptop import Laptop
from testing.codehub.terminals import attached, opened

pytestmark = [pytest.mark.timeout(900), pytest.mark.needs("sshd")]

Start = Callable[[Doors, str], AbstractContextManager[None]]


@contextmanager
def by_exec(doors: Doors, command: str) -> Iterator[None]:
    """The caller does not wait for it."""
    with doors.client() as client:
        made = client.post(doors.api + "/processes", json={"command": f"exec {command}"}).json()
        yield
        client.post(f"{doors.api}/processes/{made['id']}/signal", json={"signal": "KILL"})


@contextmanager
def in_a_closed_terminal(doors: Doors, command: str) -> Iterator[None]:
    terminal = opened(doors, ["bash", "--norc"])
    with attached(doors, terminal) as viewer:
        viewer.type(f"{command}\n")
        viewer.until("while")
    yield
    with doors.client() as client:
        assert client.delete(f"{doors.api}/terminals/{terminal}").status_code == 204


def over_ssh(home: Path) -> Start:
    @contextmanager
    def start(doors: Doors, command: str) -> Iterator[None]:
        laptop = Laptop(doors, home)
        with laptop.background(laptop.host, f"exec {command}"):
            yield

    return start


def test_work_keeps_a_workspace_awake_and_waiting_does_not(runtime: Runtime, tmp_path: Path) -> None:
    work: list[tuple[Start, str, str]] = [
        (by_exec, _computing("while 1"), "while 1"),
        (in_a_closed_terminal, _computing("while 2"), "while 2"),
        (in_a_closed_terminal, "while python3 -c 'sum(range(10_000_000))'; do sleep 0.2; done", "bash"),
        (over_ssh(tmp_path), _computing("while 3"), "while 3"),
    ]
    if runtime is not on_processes:
        work = work[:1]  # the rule is the same program's on both runtimes
    with fresh_stack() as stack:
        runtime(stack)
        stack.environment |= {
            "LIMITS_MAX_RUNNING_PER_USER": str(len(work)),
            "TTL_STANDBY_SECONDS": "30",
            "ACTIVITY_FLUSH_INTERVAL": "1",
            "COORDINATOR_TTL_INTERVAL": "1",
        }
        stack.up()
        # A workspace each, because every one has to be idle for as long as it takes to fall asleep.
        workspaces = [open_doors(stack, f"idle-{number}") for number in range(len(work))]
        with ExitStack() as programs:
            for doors, (begin, command, _) in zip(workspaces, work, strict=True):
                with doors.client() as client:
                    client.post(doors.api + "/processes", json={"command": ["sleep", "infinity"]})
                programs.enter_context(begin(doors, command))
            for doors, (_, command, name) in zip(workspaces, work, strict=True):
                _until_kept_awake_by(doors, name, command)
            assert workspaces[0].codehub("ws", "ls").stdout.decode().count("kept awake by") == len(work)
        # Neither a terminal that is looked at nor a page that refreshes itself is work.
        looked_at = workspaces[0]
        terminal = opened(looked_at, ["bash", "--norc"])
        with attached(looked_at, terminal), looked_at.client() as client:
            deadline = time.monotonic() + TIMEOUT_S
            while any(doors.phase() != "STANDBY" for doors in workspaces):
                client.get(looked_at.api + "/ports", params={"wake": 0})
                assert time.monotonic() < deadline
                time.sleep(0.5)


def _computing(loop: str) -> str:
    """Return a command that uses about half a core, and enough of one on a machine with ten times as much to do."""
    return f"python3 -c '{loop}: sum(range(5_000_000)); __import__(\"time\").sleep(0.1)'"


def _until_kept_awake_by(doors: Doors, name: str, command: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    with doors.client() as client:
        while name not in ((found := client.get(doors.api).json())["kept_awake_by"] or ""):
            assert time.monotonic() < deadline, found
            assert found["phase"] == "RUNNING", (command, found)
            time.sleep(0.2)
