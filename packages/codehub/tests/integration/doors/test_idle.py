"""Idle means idle: a program at work keeps its workspace awake and is named; what only waits does not."""

from __future__ import annotations

import time

import pytest

from testing.codehub.doors import Runtime, open_doors
from testing.codehub.full_stack import TIMEOUT_S, fresh_stack
from testing.codehub.terminals import attached, opened

pytestmark = pytest.mark.timeout(900)


def test_work_keeps_a_workspace_awake_and_waiting_does_not(runtime: Runtime) -> None:
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
            spin = ["python3", "-c", "while True: pass"]
            made = client.post(doors.api + "/processes", json={"command": spin}).json()
            client.post(doors.api + "/processes", json={"command": ["sleep", "infinity"]})
            deadline = time.monotonic() + TIMEOUT_S
            while (found := client.get(doors.api).json())["kept_awake_by"] is None:
                assert time.monotonic() < deadline, found
                assert found["phase"] == "RUNNING"
                time.sleep(0.2)
            assert found["kept_awake_by"] == "python3 -c 'while True: pass'"
            listed = doors.codehub("ws", "ls").stdout.decode()
            assert "kept awake by" in listed
            client.post(f"{doors.api}/processes/{made['id']}/signal", json={"signal": "KILL"})
        # Neither a terminal that is looked at nor a page that refreshes itself is work.
        terminal = opened(doors, ["bash", "--norc"])
        with attached(doors, terminal), doors.client() as client:
            deadline = time.monotonic() + TIMEOUT_S
            while doors.phase() != "STANDBY":
                client.get(doors.api + "/ports", params={"wake": 0})
                assert time.monotonic() < deadline
                time.sleep(0.5)
