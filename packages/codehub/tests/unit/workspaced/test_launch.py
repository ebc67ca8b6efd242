"""What a start waits for: the first process in a workspace, until it becomes the IDE."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.portable import put_compiled
from codehub.adapters.workspaced_launch import FOLDER, Launch, words
from codehub.workspaced import __main__ as launcher
from testing.ports import free_port

_SET_CHILD_SUBREAPER = 36
SECRET = 'the secret of "this" start: ü\n\\'


@pytest.fixture(autouse=True)
def stopped_helpers() -> Iterator[None]:
    """Stop the helpers, which outlive the IDE: they become children of this process."""
    libc = ctypes.CDLL(None)
    before = set(psutil.Process().children(recursive=True))
    libc.prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield
        while left := [one for one in psutil.Process().children(recursive=True) if one not in before]:
            for one in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(left, timeout=60)
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, 0)


def launched(place: Path, *command: str, pip: str | None = None, python: tuple[str, ...] = ()) -> str:
    """Run the launcher with a command for an IDE, and return what both wrote."""
    launch = Launch(home=str(place), runtime=str(place / "run"), listen=f"unix:{place}/s", secret=SECRET, pip=pip)
    own = words(sys.executable, FOLDER, command)
    with tempfile.TemporaryFile("w+") as output:  # a pipe would stay open as long as the helper
        subprocess.run(
            [own[0], *python, *own[1:]],
            env={"PATH": os.environ["PATH"], "HOME": str(place), **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=120,
        )
        output.seek(0)
        return output.read()


def test_a_start_waits_for_no_module_that_takes_long_to_import(tmp_path: Path) -> None:
    imported = {
        line.rpartition("|")[2].strip()
        for line in launched(tmp_path, "true", python=("-X", "importtime")).splitlines()
        if line.startswith("import time:")
    }
    assert "posixpath" in imported, "the list of imports"
    assert imported.isdisjoint(
        {"asyncio", "contextlib", "json", "re", "shutil", "signal", "subprocess", "typing", "venv"}
    )


def test_shells_are_set_up_before_the_ide_starts(tmp_path: Path) -> None:
    assert (tmp_path / ".bashrc").exists() is False
    shown = launched(tmp_path, "ls", "-a", str(tmp_path), str(tmp_path / ".local"), pip="")
    assert {".bashrc", ".profile", "bin"} <= set(shown.split())


def test_the_python_environment_is_there_before_the_helper_answers(tmp_path: Path) -> None:
    launched(tmp_path, "true", pip="")
    deadline = time.monotonic() + 60
    while not (tmp_path / "s").exists():
        assert time.monotonic() < deadline, "the helper listens"
        time.sleep(0.01)
    assert (tmp_path / ".venv/bin/python3").exists()
    assert (tmp_path / ".venv/bin/activate").exists()


@pytest.mark.parametrize("by_port", [False, True])
def test_the_helper_waits_until_the_ide_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_port: bool
) -> None:
    with socket.socket(socket.AF_INET if by_port else socket.AF_UNIX) as ide:
        address = ("127.0.0.1", free_port()) if by_port else str(tmp_path / "ide.sock")

        def begin_to_listen(pause_s: float) -> None:
            ide.bind(address)
            ide.listen()

        monkeypatch.setattr(time, "sleep", begin_to_listen)
        monkeypatch.setattr(launcher, "_HEAD_START_S", 600.0)
        launcher.wait_for_ide({"ide": address[1] if by_port else address})
        assert ide.getsockname() == address


def test_the_helper_waits_for_a_slow_ide_no_longer_than_its_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal now
        now += pause_s

    monkeypatch.setattr(launcher, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    launcher.wait_for_ide({"ide": "/nowhere/ide.sock"})
    assert 0.4 < now < 0.6


def test_the_helper_never_waits_for_an_ide_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", None)
    launcher.wait_for_ide({"ide": "/nowhere/ide.sock", "awaits_environment": True})
    launcher.wait_for_ide({})


def test_an_ide_starts_in_a_home_that_cannot_be_set_up(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file in its place")
    assert "runs" in launched(home, "echo", "runs", pip="")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_compiled_modules_are_readable_by_workspaces(tmp_path: Path, umask: int) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    before = os.umask(umask)
    try:
        put_compiled(tmp_path)
    finally:
        os.umask(before)
    (made,) = (tmp_path / "__pycache__").iterdir()
    assert (tmp_path / "__pycache__").stat().st_mode & 0o755 == 0o755
    assert made.stat().st_mode & 0o444 == 0o444


def test_the_configuration_is_in_no_environment_of_the_ide(tmp_path: Path) -> None:
    shown = launched(tmp_path, sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
    assert "CODEHUB_WORKSPACED" not in json.loads(next(line for line in shown.splitlines() if line.startswith("{")))


def test_the_ide_inherits_no_descriptor_to_read_the_configuration_from(tmp_path: Path) -> None:
    shown = launched(tmp_path, sys.executable, "-c", "import os; print(*os.listdir('/proc/self/fd'))")
    # The last one is the listing itself.
    assert sorted(shown.splitlines()[-1].split())[:3] == ["0", "1", "2"]
    assert len(shown.splitlines()[-1].split()) == 4


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5)
)
def test_the_configuration_is_parsed_as_json_does(value: object) -> None:
    assert launcher.parse(json.dumps({"key": value})) == {"key": value}
