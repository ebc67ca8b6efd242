"""The commands that work inside a workspace, where something is in the way: odd names, odd input, a stop meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.laptop import Laptop

NAMES = [b"line\nfeed", b"latin-\xff", b"q?x", b"h#y", b"p%41", b" lead", b"-dash", b"a:b"]


def started(doors: Doors, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        doors.stack.command(*words),
        env={**doors.stack.environment, "CODEHUB_SERVER": doors.stack.url, "CODEHUB_TOKEN": doors.token},
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_copied_both_ways_and_removed(doors: Doors, tmp_path: Path, name: bytes) -> None:
    text = os.fsdecode(name)
    source = tmp_path / text
    source.write_bytes(b"content of " + name)
    up = doors.codehub("ws", "cp", str(source), f"{doors.workspace_id}:odd/")
    assert up.returncode == 0, up.stderr
    down = doors.codehub("ws", "cp", f"{doors.workspace_id}:odd/{text}", str(tmp_path / "back"))
    assert down.returncode == 0, down.stderr
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    with doors.client() as client:
        (listed,) = client.get(doors.api + "/files/odd?list=1").json()["items"]
        # A name that is not UTF-8 has a form in which it can be sent back.
        path = listed.get("encoded_path") or quote(listed["path"])
        assert path == quote(name)
        assert client.delete(f"{doors.api}/files/odd/{path}").status_code == 204
        assert client.get(doors.api + "/files/odd?list=1").json()["items"] == []


def test_a_file_that_grows_is_copied_as_far_as_it_went_and_one_that_shrinks_is_refused(
    doors: Doors, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(b"x" * 8_000_000)
    stop = threading.Event()

    def grow() -> None:
        with log.open("ab") as more:
            while not stop.is_set():
                more.write(b"y" * 1000)
                more.flush()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        done = doors.codehub("ws", "cp", str(log), f"{doors.workspace_id}:log")
    finally:
        stop.set()
        writer.join()
    assert done.returncode == 0, done.stderr
    assert int(doors.sh("stat -c %s log; rm log")) >= 8_000_000


def test_what_the_commands_cannot_send_is_refused_with_a_reason(doors: Doors, tmp_path: Path) -> None:
    name = doors.workspace_id
    refused = doors.codehub("ws", "exec", "--stdin", name, "--", "cat", stdin=b"\xff\xfe")
    assert (refused.returncode, b"no UTF-8" in refused.stderr) == (2, True), refused.stderr
    refused = doors.codehub("ws", "exec", "--cwd", "nowhere", name, "--", "true")
    assert (refused.returncode, b"nowhere cannot be entered" in refused.stderr) == (2, True), refused.stderr
    for duration in ("0h", "99999999999d", "-1h", "4"):
        refused = doors.codehub("ws", "keep-awake", name, duration)
        assert (refused.returncode, b"Traceback" in refused.stderr) == (2, False), refused.stderr
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb"):
        refused = doors.codehub("ws", "cp", str(tmp_path / "pipe"), f"{name}:x")
    assert (refused.returncode, b"neither a file nor a folder" in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "/etc/outside"])
def test_a_path_outside_the_home_is_refused_in_both_directions(doors: Doors, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    doors.sh("mkdir -p a")
    up = doors.codehub("ws", "cp", str(tmp_path / "file"), f"{doors.workspace_id}:{path}")
    down = doors.codehub("ws", "cp", f"{doors.workspace_id}:{path}", str(tmp_path / "back"))
    for refused in (up, down):
        assert (refused.returncode, refused.stderr) == (4, f"codehub: {path} is outside the home\n".encode())
    assert not (tmp_path / "back").exists()


def test_a_command_that_ends_with_its_workspace_says_so(doors: Doors, tmp_path: Path) -> None:
    with started(doors, "ws", "exec", doors.workspace_id, "--", "sh", "-c", "echo begun; exec sleep 1234") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        doors.sleep()
        _, errors = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 7
    assert b"the workspace may have been stopped" in errors
    # The next one wakes it, says so, and leaves nothing of a download that ended early.
    woken = doors.codehub("ws", "exec", doors.workspace_id, "--", "sh", "-c", "truncate -s 2G sparse; echo up")
    assert (woken.returncode, woken.stdout) == (0, b"up\n"), woken.stderr
    assert b"waking" in woken.stderr
    with started(doors, "ws", "cp", f"{doors.workspace_id}:sparse", str(tmp_path / "sparse")) as copy:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        doors.sleep()
        _, errors = copy.communicate(timeout=TIMEOUT_S)
    assert (copy.returncode, list(tmp_path.iterdir())) == (7, []), errors
    doors.codehub("ws", "exec", doors.workspace_id, "--", "rm", "sparse")


def test_a_local_port_that_is_taken_is_known_before_the_workspace_is_woken(doors: Doors) -> None:
    doors.sleep()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = doors.codehub("port-forward", doors.workspace_id, f"3000:{port}")
    assert (refused.returncode, b"Address already in use" in refused.stderr) == (6, True), refused.stderr
    assert doors.phase() == "STANDBY"
    assert doors.codehub("ws", "exec", doors.workspace_id, "--", "true").returncode == 0


def test_keeping_a_sleeping_workspace_awake_wakes_it(doors: Doors) -> None:
    doors.sleep()
    with doors.client() as client:
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        for query, wrong in (("?wake=0", until), ("", None), ("", "2001-01-01T00:00:00Z")):
            client.post(f"{doors.api}:keep-awake{query}", json={"until": wrong})
        assert client.get(doors.api).json()["desired_state"] == "STANDBY"
    kept = doors.codehub("ws", "keep-awake", doors.workspace_id, "4h")
    assert (kept.returncode, b"is started and stays awake until" in kept.stdout) == (0, True), kept
    doors.until("RUNNING")
    assert b"may go to sleep" in doors.codehub("ws", "keep-awake", doors.workspace_id, "off").stdout


def test_the_defaults_of_other_hosts_do_not_apply_to_workspaces(doors: Doors, tmp_path: Path) -> None:
    """`ssh` takes the first value that it finds, and many configurations begin with `Host *`."""
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    text = (
        "Host *\n  User somebody\n  ConnectTimeout 1\n  StrictHostKeyChecking no\n  ProxyCommand false\n"
        "  UserKnownHostsFile /dev/null\n  Compression yes"
    )
    config.write_text(text)
    laptop = Laptop(doors, tmp_path)
    assert laptop.ssh(laptop.host, "echo", "inside") == b"inside\n"
    shown = laptop.ssh("-G", laptop.host).decode().splitlines()
    assert {"user coder", "stricthostkeychecking true", "connecttimeout 0", "compression yes"} <= set(shown)
    elsewhere = laptop.ssh("-G", "elsewhere.example").decode().splitlines()
    assert {"user somebody", "connecttimeout 1", "compression yes"} <= set(elsewhere)
    assert laptop.run(*laptop.codehub("config-ssh", "--yes", "--remove", "--file", str(config))).returncode == 0
    assert config.read_text() == text
