"""The program that clones, on a disk that is full: what it says, and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import codehub.workspaced.clone
from codehub.workspaced.clone import NO_SPACE
from testing.codehub.git_server import git

pytestmark = pytest.mark.needs("root", "git")
_MIB = 1 << 20


class _Quiet(SimpleHTTPRequestHandler):
    def copyfile(self, source: object, outputfile: object) -> None:
        with suppress(ConnectionError):  # the client gave up
            super().copyfile(source, outputfile)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing to the tests' output."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A repository of 12 MiB, served as files."""
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "data.bin").write_bytes(os.urandom(12 * _MIB))
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "First")
    served = tmp_path / "served"
    git(work, "clone", "-q", "--bare", str(work), str(served / "app.git"))
    git(served / "app.git", "update-server-info")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever, name="git over http", daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/app.git"
        server.shutdown()
        thread.join()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", home], check=True)
    yield home
    subprocess.run(["umount", home], check=True)


def clone(home: Path, url: str) -> tuple[int, dict[str, object]]:
    result = home / "clone.result"
    spec = {
        "url": url,
        "ref": "",
        "name": "app",
        "home": str(home),
        "id": "1",
        "staging": str(home / "staging" / "app"),
        "result": str(result),
        "partial_bytes": str(1 << 40),
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", codehub.workspaced.clone.__file__],
        input=json.dumps(spec).encode(),
        env={"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=False,
    )
    return done.returncode, json.loads(result.read_text() or "{}") if result.exists() else {}


def test_a_clone_that_fills_the_disk_says_so_and_gives_the_space_back(small_disk: Path, url: str) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(12 * _MIB))
    code, result = clone(small_disk, url)
    assert (code, result.get("kind")) == (1, "space"), result
    assert "no room left" in str(result["message"])
    free = os.statvfs(small_disk)
    assert free.f_bavail * free.f_frsize > 6 * _MIB, "half a clone does not stay"
    ballast.unlink()
    # Twice its size is needed: what was received, and what is checked out.
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    code, result = clone(small_disk, url)
    assert (code, result.get("state")) == (0, "done"), result
    assert (small_disk / "app/data.bin").stat().st_size == 12 * _MIB


def test_without_room_for_the_result_the_exit_code_says_so(small_disk: Path, url: str) -> None:
    filled = subprocess.run(["dd", "if=/dev/zero", f"of={small_disk}/ballast"], capture_output=True, check=False)
    assert b"No space" in filled.stderr
    code, result = clone(small_disk, url)
    assert (code, result) == (NO_SPACE, {})
