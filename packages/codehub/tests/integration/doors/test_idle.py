"""Idle means idle: a program at work keeps its workspace awake and is named; what only waits does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
    with fresh_stack() as stack:
        runtime(stack)
        stack.environment |= {
            "TTL_STANDBY_SECONDS": "30",
            "ACTIVITY_FLUSH_INTERVAL": "1",
            "COORDINATOR_TTL_INTERVAL": "1",
        }
        stack.up()
        doors = open_doors(stack)
        with doors.client() as client:
            client.post(doors.api + "/processes", json={"command": ["sleep", "infinity"]})
            work: list[tuple[Start, str, str]] = [
                (by_exec, "python3 -c 'while 1: pass'", "while 1: pass"),
                (in_a_closed_terminal, "python3 -c 'while 2: pass'", "while 2: pass"),
                (in_a_closed_terminal, "while python3 -c 'sum(range(5_000_000))'; do sleep 0.2; done", "bash"),
                (over_ssh(tmp_path), "python3 -c 'while 3: pass'", "while 3: pass"),
            ]
            # Each takes most of a minute, and the rule is the same program's on both runtimes.
            for begin, command, name in work if runtime is on_processes else work[:1]:
                with begin(doors, command):
                    deadline = time.monotonic() + TIMEOUT_S
                    while name not in ((found := client.get(doors.api).json())["kept_awake_by"] or ""):
                        assert time.monotonic() < deadline, found
                        assert found["phase"] == "RUNNING", (command, found)
                        time.sleep(0.2)
                    assert "kept awake by" in doors.codehub("ws", "ls").stdout.decode()
        # Neither a terminal that is looked at nor a page that refreshes itself is work.
        terminal = opened(doors, ["bash", "--norc"])
        with attached(doors, terminal), doors.client() as client:
            deadline = time.monotonic() + TIMEOUT_S
            while doors.phase() != "STANDBY":
                client.get(doors.api + "/ports", params={"wake": 0})
                assert time.monotonic() < deadline
                time.sleep(0.5)
