"""The attempts of `codehub doctor` succeed where nothing prevents them. One that always failed would report *held*."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

from codehub.adapters.boundary_probe import attempt, try_tcp


def tried(means: str, target: str = "", amount: int = 0) -> bool | None:
    return attempt({"means": means, "target": target, "amount": amount}, 60)[0]


def test_listeners_are_reached_and_others_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (listening, closed)]
        found = try_tcp([("127.0.0.1", port, True) for port in ports])
        assert [succeeded for succeeded, _ in found] == [True, False]
        # If nobody knows that something answers there, a failed attempt proves nothing.
        assert try_tcp([("127.0.0.1", ports[1], False)])[0][0] is None


def test_a_socket_is_reached_by_a_short_or_a_long_path_and_by_an_abstract_name(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    here = os.getcwd()
    for folder in (tmp_path, tmp_path / ("long" * 40)):
        folder.mkdir(exist_ok=True)
        assert tried("unix", f"{folder}/s") is False
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(folder)  # a socket's address has at most 107 bytes
            listening.bind("s")
            os.chdir(here)
            listening.listen()
            assert tried("unix", f"{folder}/s") is True
        assert os.getcwd() == here
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen()
        assert tried("abstract", name) is True
    assert tried("abstract", name) is False


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    assert tried("read", str(tmp_path)) is True
    assert tried("read", f"{tmp_path}/secret") is True
    assert tried("read", f"{tmp_path}/none") is False


def test_memory_is_taken_and_processes_are_started_where_no_limit_is_reached() -> None:
    assert tried("memory", amount=4 << 20) is True
    assert tried("processes", amount=3) is True


def test_an_unknown_attempt_proves_nothing() -> None:
    assert tried("telepathy") is None
