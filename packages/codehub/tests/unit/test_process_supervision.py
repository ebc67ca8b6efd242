"""What the supervisor of a process workspace, which is root, does with what the workspace gives it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters.process import stopping
from codehub.adapters.process.port_bridge import bind
from codehub.adapters.process.records import Record, leftovers
from codehub.adapters.process.supervisor import Supervisor
from codehub.ports.fence import no_fence


class Swapped(socket.socket):
    """The workspace replaces the socket by a link as soon as it is there."""

    def bind(self, address: object) -> None:
        super().bind(address)  # type: ignore[arg-type]
        path = Path(str(address))
        path.unlink()
        path.symlink_to(path.with_name("victim"))


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_bridges_socket_has_its_mode_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ide.sock"
    for _ in range(2):  # the second time it is there already
        with socket.socket(socket.AF_UNIX) as listener:
            bind(listener, str(path), os.geteuid())
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.usefixtures("umask")
def test_a_link_in_place_of_the_bridges_socket_changes_no_other_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch(0o600)
    with Swapped(socket.AF_UNIX) as listener:
        bind(listener, str(tmp_path / "ide.sock"), os.geteuid())
    assert (tmp_path / "ide.sock").is_symlink()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_a_workspace_that_never_stops_writing_can_be_stopped() -> None:
    supervisor = Supervisor.__new__(Supervisor)  # without its signal handlers
    supervisor.out_r, writer = os.pipe()
    supervisor.wake_r = -1
    pieces = 0

    class Endless:
        def write(self, data: bytes) -> None:
            """As fast as it is read, the workspace writes more."""
            nonlocal pieces
            pieces += 1
            assert pieces < 1_000, "nothing else is looked at while it writes"
            os.write(writer, data)

    supervisor.log = Endless()  # type: ignore[assignment]
    os.write(writer, b"y\n")
    try:
        assert supervisor._drain()
    finally:
        os.close(supervisor.out_r)
        os.close(writer)


async def test_a_process_that_got_the_pid_of_a_leftover_meanwhile_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A workspace can end thousands of processes a second, and so decide which pids are used again."""
    identity = uuid.uuid4().hex
    record = Record("w", identity, "", "an earlier boot", 1, 0, None, "", 0, "", None)
    with (
        subprocess.Popen(["sleep", "300"]) as innocent,
        subprocess.Popen(["sleep", "300"], env={"PATH": os.defpath, "CODEHUB_INSTANCE": identity}) as left,
    ):
        try:
            monkeypatch.setattr(
                stopping,
                "leftovers",
                lambda *which: [innocent.pid, *leftovers(*which)] if left.poll() is None else [],
            )
            await stopping.end_tree(record, 1.0, no_fence)
            assert left.wait(60) == -9
            assert innocent.poll() is None
        finally:
            for one in (innocent, left):
                one.kill()
