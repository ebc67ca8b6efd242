"""A workspace that names its processes and prints so as to control the terminal of whoever looks at it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time

import pytest

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S

# Sets the title, fills the clipboard, clears the screen, asks for an answer; the last one is a single C1 character.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x1b[6n\x9b5n"
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x7f-\x9f]|\x1b(?!\\[[0-9;]*m)")


def on_a_terminal(doors: Doors, *words: str) -> str:
    """Run `codehub ws …` with a terminal as its output, and return what it wrote there."""
    ours, theirs = pty.openpty()
    environment = doors.stack.environment | {"CODEHUB_TOKEN": doors.token, "CODEHUB_SERVER": doors.stack.url}
    running = subprocess.Popen(
        doors.stack.command("ws", *words), env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65_536):
            written += data
    except OSError:  # the other side was closed
        pass
    finally:
        os.close(ours)
    assert running.wait(TIMEOUT_S) == 0, written
    return written.decode()


@pytest.mark.timeout(300)
def test_what_a_workspace_names_and_prints_does_not_control_a_terminal(doors: Doors) -> None:
    with doors.client() as client:
        command = ["sh", "-c", "sleep 600 # $0", HOSTILE]
        made = client.post(f"{doors.api}/processes", json={"command": command})
        assert made.status_code == 201, made.text
        said = client.post(
            doors.at_proxy(f"/w/{doors.workspace_id}/say"), content=("printed " + HOSTILE).encode(), timeout=60
        )
        assert said.status_code == 200, said.text
        deadline = time.monotonic() + TIMEOUT_S
        while "printed" not in client.get(f"{doors.api}/logs").text:
            assert time.monotonic() < deadline
    try:
        for words in (("ps",), ("logs",), ("show",), ("ps", "--json")):
            shown = on_a_terminal(doors, words[0], doors.workspace_id, *words[1:])
            assert not CONTROL.search(shown), (words, CONTROL.findall(shown))
            if words[0] in ("ps", "logs"):
                assert "owned" in shown, words
    finally:
        with doors.client() as client:
            client.post(f"{doors.api}/processes/{made.json()['id']}/signal", json={"signal": "KILL"})
