"""Sockets that a workspace can replace: links, files, foreign listeners and swaps are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters.workspace_socket import ForeignSocketError, connect_workspace_socket, open_workspace_socket

FOREIGN_UID = 1_234_567
LISTEN_AS = """import os, socket, sys
os.setgid({uid}); os.setuid({uid})
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); listener.listen()
print("listening", flush=True); sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A short path: a socket's holds 108 bytes."""
    short = Path(f"/tmp/codehub-sock-{os.getpid()}-{tmp_path.name[-12:]}")
    subprocess.run(["rm", "-rf", short], check=True)
    short.mkdir(mode=0o777)
    short.chmod(0o777)
    return short


@contextlib.contextmanager
def listening(path: Path, backlog: int = 16) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@contextlib.contextmanager
def listening_as(uid: int, path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN_AS.format(uid=uid), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        yield


def test_the_users_own_socket_is_connected_to(place: Path) -> None:
    with listening(place / "ide.sock") as listener, connect_workspace_socket(str(place / "ide.sock"), None) as ours:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"hello")
            ours.setblocking(True)
            assert ours.recv(10) == b"hello"


def test_a_link_to_another_socket_is_not_followed(place: Path) -> None:
    with listening(place / "victim.sock") as victim:
        (place / "ide.sock").symlink_to(place / "victim.sock")
        with pytest.raises(OSError, match="not a socket"):
            connect_workspace_socket(str(place / "ide.sock"), None)
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()


@pytest.mark.parametrize("kind", ["file", "directory", "fifo"])
def test_anything_but_a_socket_is_refused_without_being_opened(place: Path, kind: str) -> None:
    path = place / "ide.sock"
    match kind:
        case "file":
            path.touch()
        case "directory":
            path.mkdir()
        case _:
            os.mkfifo(path)
    with pytest.raises(ForeignSocketError, match="not a socket"):
        connect_workspace_socket(str(path), None)


@pytest.mark.needs("root")
def test_a_socket_that_somebody_else_serves_is_refused(place: Path) -> None:
    """A hard link or a rename brings another's socket to the name without any link to follow."""
    with listening_as(FOREIGN_UID, place / "victim.sock"):
        os.link(place / "victim.sock", place / "ide.sock")
        with pytest.raises(ForeignSocketError, match=f"uid {FOREIGN_UID}, not by the workspace's"):
            connect_workspace_socket(str(place / "ide.sock"), FOREIGN_UID + 1)
        connect_workspace_socket(str(place / "ide.sock"), FOREIGN_UID).close()


def test_a_name_that_is_swapped_after_the_check_leads_to_what_was_checked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look = place / "ide.sock", os.fstat
    with listening(place / "victim.sock") as victim, listening(place / "own.sock") as own:
        os.link(place / "own.sock", path)

        def look_and_swap(fd: int) -> os.stat_result:
            found = look(fd)
            path.unlink(missing_ok=True)
            path.symlink_to(place / "victim.sock")
            return found

        with monkeypatch.context() as swapping:
            swapping.setattr(os, "fstat", look_and_swap)
            connect_workspace_socket(str(path), None).close()
        assert path.is_symlink()
        own.setblocking(False)
        own.accept()[0].close()
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()


def test_a_name_that_is_swapped_all_the_time_never_leads_to_the_victim(place: Path) -> None:
    path, stop = place / "ide.sock", threading.Event()
    with listening(place / "victim.sock", 4096) as victim, listening(place / "own.sock", 4096):

        def swap() -> None:
            while not stop.is_set():
                for name in ("victim.sock", "own.sock"):
                    new = place / "new"
                    if name == "own.sock":
                        os.link(place / name, new)
                    else:
                        new.symlink_to(place / name)
                    new.rename(path)
                    # Renaming one hard link over another of the same file does nothing and leaves the first.
                    new.unlink(missing_ok=True)

        swapper = threading.Thread(target=swap)
        swapper.start()
        connected = 0
        try:
            for _ in range(3000):
                with contextlib.suppress(OSError):
                    connect_workspace_socket(str(path), None).close()
                    connected += 1
        finally:
            stop.set()
            swapper.join()
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()
    assert connected


async def test_a_full_queue_is_waited_for(place: Path) -> None:
    path = str(place / "ide.sock")
    with listening(place / "ide.sock", 0) as listener, contextlib.ExitStack() as kept:
        kept.enter_context(connect_workspace_socket(path, None))
        with pytest.raises(BlockingIOError):
            connect_workspace_socket(path, None)
        waiting = asyncio.create_task(open_workspace_socket(path, None))
        await asyncio.sleep(0)
        kept.enter_context(listener.accept()[0])
        async with asyncio.timeout(30):
            kept.enter_context(await waiting)
