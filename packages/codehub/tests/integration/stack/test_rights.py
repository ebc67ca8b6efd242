"""Whose rights the parts of a `codehub up` have when root starts it."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from codehub.cli.stack.receipts import ReceiptsView
from codehub.domain.errors import BackendDown
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.tiny_ide import run_through_proxy

pytestmark = pytest.mark.needs("root", "bwrap", "slirp4netns")


@pytest.fixture
def stack() -> Iterator[Stack]:
    with fresh_stack() as made:
        yield made


def _status(process: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _uid(process: psutil.Process) -> set[int]:
    return {int(word) for word in _status(process)["Uid"].split()}


def test_only_the_coordinator_is_root_and_workspaces_open_through_the_proxy(stack: Stack) -> None:
    stack.with_tiny_ide()
    stack.up()
    own = pwd.getpwnam("codehub")
    for part in ("api", "proxy"):
        (process,) = stack.processes(part)
        status = _status(process)
        assert _uid(process) == {own.pw_uid}, part
        assert {int(word) for word in status["Gid"].split()} == {own.pw_gid}, part
        assert status["Groups"] == "", part
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}, part
        assert status["NoNewPrivs"] == "1", part
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"CODEHUB_ADMIN_PASSWORD" not in environment
        assert stack.password() not in " ".join(process.cmdline())
    for part in ("postgres", "valkey"):
        (process,) = stack.processes(part)
        assert _uid(process) == {own.pw_uid}, part
    (coordinator,) = stack.processes("coordinator")
    assert _uid(coordinator) == {0}

    with stack.client() as client:
        token = client.post("/api/v1/tokens", json={"name": "test"}).json()["token"]
        made = client.post("/api/v1/workspaces", json={"name": "one"})
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
        # By the API, which reads records, output and usage of a process that another user runs.
        assert client.get(f"{path}/logs").status_code == 200
        done = client.post(f"{path}/exec", json={"command": ["id", "-u"]})
        assert done.status_code == 200, done.text
        assert int(done.json()["stdout"]) not in (0, own.pw_uid)
        # The second user is allowed by what the coordinator found, not by what this process may do.
        added = client.post("/api/v1/users", json={"username": "second", "password": "long enough 1"})
        assert added.status_code == 201, added.text
    port = stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
    answer = run_through_proxy(port, made.json()["id"], token, "id")
    assert (answer.status_code, "uid=0" in answer.text) == (200, False), answer.text
    assert str(own.pw_gid) not in answer.text, "a workspace never has CodeHub's group"

    # A part that was killed comes back with no more rights than before.
    (before,) = stack.processes("proxy")
    before.kill()
    stack.wait(lambda: stack.processes("proxy") not in ([], [before]))
    with httpx.Client(trust_env=False, timeout=60) as client:
        stack.wait(lambda: _ok(client, f"http://127.0.0.1:{port}/health"))
    assert _uid(stack.processes("proxy")[0]) == {own.pw_uid}
    assert run_through_proxy(port, made.json()["id"], token, "id").status_code == 200


def _ok(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def test_api_and_proxy_read_neither_secrets_nor_homes(stack: Stack) -> None:
    """What each file's mode and owner allow the account; root's own secrets stay root's."""
    stack.with_tiny_ide()
    private = Path(f"/root/.codehub-test-{os.getpid()}")
    private.touch()
    try:
        stack.up()
        (api,) = stack.processes("api")
        # Root's home, where this Python may be installed, shows nothing but Python.
        seen = os.listdir(f"/proc/{api.pid}/root/root")
        assert private.name not in seen
    finally:
        private.unlink()
    own = pwd.getpwnam("codehub")
    with stack.client() as client:
        made = client.post("/api/v1/workspaces", json={"name": "one"})
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
    for secret in ("admin-password", "postgres-password", "valkey-password", "environment"):
        info = (stack.data_dir / secret).stat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (0, 0o600), secret
    home = stack.home_of("one").stat()
    assert home.st_uid not in (0, own.pw_uid)
    assert home.st_gid != own.pw_gid
    assert stat.S_IMODE(home.st_mode) & 0o077 == 0
    archives = (stack.data_dir / "archives").stat()
    assert (archives.st_uid, stat.S_IMODE(archives.st_mode)) == (0, 0o700)
    with stack.client() as client:
        assert client.post(f"{path}:archive").status_code == 202
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
    # The API cannot read the archives, and gets a list of them.
    view = ReceiptsView(stack.data_dir / "run" / "receipts" / "receipts.sock")
    (receipt,) = asyncio.run(view.receipts(made.json()["id"]))
    assert made.json()["id"] in receipt.archive_key
    with pytest.raises(BackendDown):
        asyncio.run(view.receipts("../../homes"))


def test_a_user_that_is_somebody_elses_is_refused(stack: Stack) -> None:
    for name in ("nobody", "www-data"):
        refused = stack.run("up", CODEHUB_USER=name)
        assert (refused.returncode, "other services" in refused.stderr) == (2, True), refused.stderr
