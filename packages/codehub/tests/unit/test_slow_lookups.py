"""Hosts whose name server never answers, in a user's repository URL: their lookups hold up nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codehub.adapters import git_remote
from codehub.adapters.git_remote import GitRemote
from codehub.domain.errors import Invalid
from codehub.domain.repository import parse_url


async def test_a_name_server_that_never_answers_takes_no_shared_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared threads check everybody's passwords."""
    answers, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: object, **__: object) -> list[object]:
        begun.release()
        answers.wait(200)
        raise OSError("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(git_remote._AT_ONCE))
    remote, url = GitRemote(), parse_url("https://slow.example/a.git")
    asked = [asyncio.create_task(remote.branches(url, "", "", "mallory")) for _ in range(16)]
    try:
        async with asyncio.timeout(20):
            for _ in range(git_remote._AT_ONCE):
                while not begun.acquire(blocking=False):
                    await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: "checked") == "checked"
    finally:
        answers.set()
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, Invalid) for result in results)
