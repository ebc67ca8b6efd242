"""What a start waits for: the first process in a workspace, until it becomes the IDE."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from codehub.adapters.portable import put_compiled
from codehub.adapters.workspaced_launch import FOLDER, Launch, words

_SET_CHILD_SUBREAPER = 36


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
    launch = Launch(home=str(place), runtime=str(place / "run"), listen=f"unix:{place}/s", secret="s", pip=pip)
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
    assert "json" in imported, "the list of imports"
    assert imported.isdisjoint({"asyncio", "typing", "shutil", "subprocess", "signal", "logging"})


def test_the_home_is_set_up_before_the_ide_starts(tmp_path: Path) -> None:
    assert (tmp_path / ".bashrc").exists() is False
    shown = launched(
        tmp_path, "sh", "-c", "ls -a $HOME; readlink $HOME/.venv/bin/python3 > /dev/null && echo linked", pip=""
    )
    assert {".bashrc", ".profile", ".venv", "linked"} <= set(shown.split())


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
