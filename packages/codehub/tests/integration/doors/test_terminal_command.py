"""`codehub ws terminal` in a terminal of its own: typed into, resized, detached, cut off, and attached again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from codehub.workspaced.vt import Terminal as Model
from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.terminals import opened


class Window:
    """A terminal emulator that runs one command."""

    def __init__(self, doors: Doors, words: tuple[str, ...], cols: int, rows: int) -> None:
        self.model = Model(cols, rows)
        self._master, slave = pty.openpty()
        self._set_size(cols, rows)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            doors.stack.command("ws", "terminal", *words),
            env={**doors.stack.environment, "CODEHUB_SERVER": doors.stack.url, "CODEHUB_TOKEN": doors.token},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        self.slave = slave

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, cols: int, rows: int, typed: str = "") -> None:
        """Type before the client is told of the new size."""
        self._set_size(cols, rows)
        self.model.resize(cols, rows)
        self.type(typed)
        if not typed:  # the kernel sends it to the foreground of a controlling terminal
            self.process.send_signal(signal.SIGWINCH)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def vanish(self) -> None:
        """End as a terminal emulator that is killed."""
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), self._master)

    @property
    def lines(self) -> list[str]:
        return [line.text for line in self.model.screen.lines]

    def _draw(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        self.model.feed(os.read(self._master, 64 << 10))
        return True

    def until(self, text: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, self.lines
            self._draw(0.2)

    def exit_code(self) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.lines
            self._draw(0.05)
        while self._draw(0):
            pass
        return self.process.returncode


@contextlib.contextmanager
def window(doors: Doors, *words: str, cols: int = 90, rows: int = 20) -> Iterator[Window]:
    made = Window(doors, words, cols, rows)
    try:
        yield made
    finally:
        made.close()


def test_a_terminal_is_opened_resized_detached_and_attached_again(doors: Doors) -> None:
    with window(doors, doors.workspace_id) as first:
        first.type('stty size; echo o""pen ~.\r')  # not at the beginning of a line: typed, no detaching
        first.until("open ~.")
        first.until("20 90")
        first.resize(70, 15, typed="stty size\r")
        first.until("15 70")
        first.type('until [ "$(stty size)" = "18 80" ]; do sleep 0.1; done; echo resi""zed\r')
        first.resize(80, 18)
        first.until("resized")
        first.type("\r~~\x15export KEPT=7\r~.")
        assert first.exit_code() == 0
        assert termios.tcgetattr(first.slave) == first.before
        shown = "".join(first.lines)
    found = re.search(rf"codehub ws terminal {doors.workspace_id} ([0-9a-f]+)", shown)
    assert found is not None, shown
    with window(doors, doors.workspace_id, found[1], cols=100, rows=30) as again:
        again.until("open ~.")
        again.type('stty size; echo ke""pt=$KEPT\r')
        again.until("30 100")
        again.until("kept=7")
        again.type("exit 5\r")
        assert again.exit_code() == 5
    with window(doors, doors.workspace_id, found[1]) as gone:
        assert gone.exit_code() == 5, gone.lines  # not found
        assert any("the terminal has ended" in line for line in gone.lines)


def test_a_restart_of_the_api_is_not_seen_in_an_attached_terminal(doors: Doors) -> None:
    terminal = opened(doors, "for n in $(seq 100000); do read -r line || exit; echo got-$n-$line; done")
    with window(doors, doors.workspace_id, terminal) as viewer:
        viewer.type("before\r")
        viewer.until("got-1-before")
        for number in (signal.SIGKILL, signal.SIGTERM):
            (api,) = doors.stack.processes("api")
            api.send_signal(number)
            doors.stack.wait(lambda gone=api: [p.pid for p in doors.stack.processes("api")] not in ([], [gone.pid]))  # type: ignore[misc]
            seen = f"after-{number.value}"
            _type_until(viewer, seen)
        text = "".join(viewer.lines)
        assert text.index("got-1-before") < text.index("after-9") < text.index("after-15")
        viewer.type("\r~.")
        assert viewer.exit_code() == 0
    with doors.client() as client:
        assert client.delete(f"{doors.api}/terminals/{terminal}").status_code == 204


def _type_until(viewer: Window, text: str) -> None:
    """Keys typed while there is no connection are dropped, so type again until it is back."""
    deadline = time.monotonic() + TIMEOUT_S
    while not any(re.search(rf"got-\d+-{text}", line) for line in viewer.lines):
        assert time.monotonic() < deadline, viewer.lines
        viewer.type(f"{text}\r")
        viewer._draw(0.5)


def test_no_key_is_lost_that_is_typed_before_the_first_screen(doors: Doors) -> None:
    """The terminal has another size than the window, so the first connection ends for a screen that fits."""
    terminal = opened(doors, "for n in $(seq 100000); do read -r line || exit; echo got-$n-$line; done")
    typed = 0
    with window(doors, doors.workspace_id, terminal, cols=60) as viewer:
        while not any("got-" in line for line in viewer.lines):
            typed += 1
            viewer.type(f"{typed}\r")
            viewer._draw(0.01)
        viewer.until(f"got-{typed}-{typed}")


@pytest.mark.parametrize("command", ["echo ready; cat", "while sleep 0.1; do echo ready; done"], ids=["idle", "busy"])
def test_it_ends_when_its_own_terminal_is_gone(doors: Doors, command: str) -> None:
    terminal = opened(doors, command)
    with window(doors, doors.workspace_id, terminal) as viewer:
        viewer.until("ready")
        viewer.vanish()
        viewer.process.wait(TIMEOUT_S)
    with doors.client() as client:
        assert client.delete(f"{doors.api}/terminals/{terminal}").status_code == 204


def test_attaching_does_not_wake_and_scripts_are_pointed_to_exec(doors: Doors) -> None:
    refused = doors.codehub("ws", "terminal", doors.workspace_id)
    assert (refused.returncode, b"codehub ws exec" in refused.stderr) == (2, True), refused.stderr
    doors.sleep()
    with window(doors, doors.workspace_id, "0123") as asleep:
        assert asleep.exit_code() == 6, asleep.lines
    assert doors.phase() == "STANDBY"
    with window(doors, doors.workspace_id) as woken:
        woken.type("exit 0\r")
        assert woken.exit_code() == 0, woken.lines
    assert doors.phase() == "RUNNING"
