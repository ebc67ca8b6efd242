"""What the holder of a command records when the command ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from codehub.workspaced import holder


def ended(folder: Path, script: str, *signals_for: str) -> bool:
    """Run a command, signal it or its holder in this order, and return whether an exit code was recorded."""
    started = holder.start(holder.Launch(str(folder), ["/bin/sh", "-c", script], str(folder), {"PATH": os.defpath}))
    with open(folder / "stdout", "rb") as output:
        while not output.read():  # the holder and its command are ready for signals
            os.sched_yield()
    for name in signals_for:
        os.kill(started.holder if name == "holder" else started.pid, signal.SIGTERM)
    os.waitpid(started.holder, 0)
    holder._holders.discard(started.holder)
    return (folder / "exit").exists()


def test_a_command_that_a_stopping_workspace_ends_has_no_exit_code(tmp_path: Path) -> None:
    assert not ended(tmp_path, "echo ready; exec sleep 1000", "holder", "command")


def test_a_command_that_a_user_terminates_has_one(tmp_path: Path) -> None:
    assert ended(tmp_path, "echo ready; exec sleep 1000", "command")
    assert '"exit_code": 143' in (tmp_path / "exit").read_text()


def test_a_command_that_signals_its_parent_and_ends_by_itself_has_one(tmp_path: Path) -> None:
    assert ended(tmp_path, "echo ready; kill $PPID; exit 3")
    assert '"exit_code": 3' in (tmp_path / "exit").read_text()
