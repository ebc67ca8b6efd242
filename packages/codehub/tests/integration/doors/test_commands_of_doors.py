"""Every request of the workspace's API has a command: processes, files, terminals, and sharing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path

import httpx

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.ports import free_port

from .test_commands import started


def said(doors: Doors, *words: str) -> str:
    done = doors.codehub("ws", *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_a_process_is_found_again_by_its_id_read_and_ended(doors: Doors) -> None:
    script = "echo one; echo two >&2; trap 'echo ended; exit 3' TERM; while :; do sleep 0.1; done"
    process = said(doors, "exec", "--detach", doors.workspace_id, "--", "sh", "-c", script).strip()
    doors.stack.wait(lambda: said(doors, "output", doors.workspace_id, process) == "one\n")
    assert said(doors, "output", doors.workspace_id, process, "--after", "2") == "e\n"
    assert said(doors, "output", doors.workspace_id, process, "--stderr") == "two\n"
    said(doors, "signal", doors.workspace_id, process, "sigterm")
    assert said(doors, "output", doors.workspace_id, process, "--follow") == "one\nended\n"
    items = json.loads(said(doors, "ps", doors.workspace_id, "--json"))["items"]
    assert [item["exit_code"] for item in items if item["id"] == process] == [3]
    for words in (("output", doors.workspace_id, "0123"), ("signal", doors.workspace_id, "0123")):
        gone = doors.codehub("ws", *words)
        assert (gone.returncode, b"there is no process" in gone.stderr) == (5, True), gone.stderr


def test_files_are_listed_edited_and_deleted(doors: Doors) -> None:
    doors.sh("mkdir -p 'cli/ü #1?'; printf 'a a' > 'cli/ü #1?/a b.txt'")
    listed = json.loads(said(doors, "files", doors.workspace_id, "cli", "--depth", "2", "--json"))["items"]
    assert [item["path"] for item in listed] == ["ü #1?", "ü #1?/a b.txt"]
    name = "cli/ü #1?/a b.txt"
    once = doors.codehub("ws", "edit-file", doors.workspace_id, name, "a", "b")
    assert (once.returncode, b"occurs 2 times" in once.stderr) == (6, True), once.stderr
    said(doors, "edit-file", doors.workspace_id, name, "a", "b", "--count", "2")
    assert doors.sh(f"cat '{name}'") == "b b"
    kept = doors.codehub("ws", "rm-file", doors.workspace_id, "cli")
    assert (kept.returncode, b"add --recursive" in kept.stderr) == (6, True), kept.stderr
    said(doors, "rm-file", doors.workspace_id, "cli", "--recursive")
    for words in (("files", doors.workspace_id, "cli"), ("rm-file", doors.workspace_id, "cli")):
        assert doors.codehub("ws", *words).returncode == 5
    for word, *rest in (
        ("files", "../.."),
        ("rm-file", "/etc/passwd"),
        ("rm-file", ".."),
        ("rm-file", "../..", "-r"),
    ):
        assert b"is outside the home" in doors.codehub("ws", word, doors.workspace_id, *rest).stderr
    assert doors.codehub("ws", "rm-file", doors.workspace_id, ".", "-r").returncode != 0
    # No id is a path to another resource, such as the workspace itself.
    for word, *rest in (("terminals", "--close", ".."), ("links", "80", "--revoke", "../../.."), ("signal", "..")):
        assert doors.codehub("ws", word, doors.workspace_id, *rest).returncode == 5
    assert doors.phase() == "RUNNING"


def test_terminals_are_listed_opened_and_closed(doors: Doors) -> None:
    made = said(doors, "terminals", doors.workspace_id, "--new").strip()
    assert made in said(doors, "terminals", doors.workspace_id)
    said(doors, "terminals", doors.workspace_id, "--close", made)
    assert made not in said(doors, "terminals", doors.workspace_id)
    assert doors.codehub("ws", "terminals", doors.workspace_id, "--close", made).returncode == 5


def test_a_port_is_shared_linked_and_taken_back(doors: Doors) -> None:
    port = str(free_port())
    refused = doors.codehub("ws", "links", doors.workspace_id, port, "--new", "1h")
    assert refused.returncode == 6, refused.stderr
    assert said(doors, "share", doors.workspace_id, port, "link") == f"Port {port}: link\n"
    url = httpx.URL(said(doors, "links", doors.workspace_id, port, "--new", "1h").strip())
    assert url.params["codehub_link"]
    (link,) = json.loads(said(doors, "links", doors.workspace_id, port, "--json"))["items"]
    said(doors, "links", doors.workspace_id, port, "--revoke", link["id"])
    assert json.loads(said(doors, "links", doors.workspace_id, port, "--json"))["items"] == []
    assert said(doors, "share", doors.workspace_id, port, "owner") == f"Port {port}: owner\n"
    for words in (
        ("share", doors.workspace_id, "65536", "users"),
        ("links", doors.workspace_id, port, "--new", "soon"),
    ):
        assert doors.codehub("ws", *words).returncode == 2


def test_output_that_is_shown_on_a_terminal_does_not_control_it(doors: Doors) -> None:
    script = r"printf '\033]0;owned\007\033]52;c;aGk=\007\033[31mred\033[0m ü\n'"
    process = said(doors, "exec", "--detach", doors.workspace_id, "--", "sh", "-c", script).strip()
    raw = "\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m ü\n"
    doors.stack.wait(lambda: said(doors, "output", doors.workspace_id, process) == raw)
    shown = on_terminal(doors, "output", doors.workspace_id, process)
    assert shown == "\\x1b]0;owned\\x07\\x1b]52;c;aGk=\\x07\x1b[31mred\x1b[0m ü\r\n"


def on_terminal(doors: Doors, *words: str) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        with started(doors, "ws", *words, stdout=theirs) as command:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # as a terminal ends
                while piece := terminal.read(4096):
                    shown += piece
            command.wait(TIMEOUT_S)
    return shown.decode()


def test_a_command_ends_when_the_reader_of_its_output_has_ended(doors: Doors) -> None:
    """As in `codehub ws output -f … | head`."""
    script = "while :; do echo more; sleep 0.05; done"
    process = said(doors, "exec", "--detach", doors.workspace_id, "--", "sh", "-c", script).strip()
    with started(doors, "ws", "output", doors.workspace_id, process, "--follow") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"more\n"
        command.stdout.close()
        assert command.wait(TIMEOUT_S) == 0
    said(doors, "signal", doors.workspace_id, process, "sigkill")


def test_a_folder_that_is_too_deep_is_refused_in_both_directions(doors: Doors, tmp_path: Path) -> None:
    deep = "d/" * 1100
    try:
        doors.sh(f"mkdir -p {deep}")
        subprocess.run(["mkdir", "-p", tmp_path / "up" / deep], check=True)
        up = doors.codehub("ws", "cp", str(tmp_path / "up"), f"{doors.workspace_id}:deep")
        down = doors.codehub("ws", "cp", f"{doors.workspace_id}:d", str(tmp_path / "down"))
        for refused in (up, down):
            assert (refused.returncode, b"is more than 500 folders deep" in refused.stderr) == (6, True), (
                refused.stderr
            )
            assert b"Traceback" not in refused.stderr
        assert list((tmp_path / "down").iterdir()) == []
        assert doors.sh("test -e deep || echo absent") == "absent\n"
    finally:  # pytest and the end of CodeHub's tests remove folders recursively
        doors.sh("rm -rf d deep")
        subprocess.run(["rm", "-rf", tmp_path / "up"], check=True)
