"""A rolling restart: API, proxy and coordinator of the first release run beside ours on one migrated database.

The first release's source is taken from the history of this clone.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from testing.codehub.dashboard import PASSWORD
from testing.codehub.full_stack import Stack, fresh_stack
from testing.ports import free_ports

# The last commit of the first release: its newest migration is 0002.
FIRST_RELEASE = "24ae4f3b145f5490eb8889a059c1103393b8afcb"
ROOT = Path(__file__).parents[5]

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600)]


@pytest.fixture
def first_release(tmp_path: Path) -> Path:
    """The `src` directory of its distribution."""
    words = ["git", "-C", str(ROOT), "archive", FIRST_RELEASE, "packages/codehub/src"]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this clone has no history of the first release; test_upgrade sends what that version sends")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "packages/codehub/src"


@contextlib.contextmanager
def parts_of_the_first_release(
    source: Path, ours: Stack, **binds: str
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Its three processes, with the settings that are in force for ours and addresses of their own."""
    in_force = dict(line.split("=", 1) for line in ours.run("env").stdout.splitlines())
    # It does not know the default `*.localhost` of ours, and has path mode.
    environment = {**ours.environment, **in_force, **binds, "PYTHONPATH": str(source), "CODEHUB_WORKSPACE_HOST": ""}
    processes = {}
    with contextlib.ExitStack() as started:
        for part in ("api", "proxy", "coordinator"):
            output = started.enter_context((ours.data_dir / f"old-{part}.output").open("wb"))
            process = processes[part] = subprocess.Popen(
                [sys.executable, "-m", "codehub.cli.main", "serve", part],
                env=environment,
                cwd=source,
                stdout=output,
                stderr=output,
            )
            started.callback(process.wait, 60)
            started.callback(process.terminate)
        yield processes


def answers(client: httpx.Client, path: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get(path).status_code == 200
    return False


def phase_of(client: httpx.Client, workspace_id: str) -> str:
    return str(client.get(f"/api/v1/workspaces/{workspace_id}").json()["phase"])


def leader_of(client: httpx.Client) -> str:
    leader = client.get("/health/coordinator").json().get("leader") or {}
    return str(leader.get("holder_id", ""))


def coordinator_of(stack: Stack) -> psutil.Process:
    assert stack.process is not None
    children = psutil.Process(stack.process.pid).children(recursive=True)
    return next(child for child in children if child.cmdline()[-2:] == ["serve", "coordinator"])


def test_the_first_release_serves_beside_ours_while_it_is_replaced(first_release: Path) -> None:
    api, proxy, old_api, old_proxy, old_coordinator = free_ports(5)
    with fresh_stack() as ours:
        ours.with_tiny_ide()
        ours.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
        }
        ours.up()
        with ours.client() as client:
            token = client.post("/api/v1/tokens", json={"name": "both"}).json()["token"]

        def client_of(port: int) -> httpx.Client:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False)

        binds = {
            "CODEHUB_API_BIND": f"127.0.0.1:{old_api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{old_proxy}",
            "CODEHUB_COORDINATOR_BIND": f"127.0.0.1:{old_coordinator}",
        }
        with (
            parts_of_the_first_release(first_release, ours, **binds) as old_parts,
            client_of(api) as new,
            client_of(old_api) as old,
            client_of(proxy) as new_door,
            client_of(old_proxy) as old_door,
        ):
            ours.wait(lambda: answers(old, "/health/ready"))
            # What one creates, the other shows; our coordinator leads and starts both.
            made = [
                one.post("/api/v1/workspaces", json={"name": name}).json()["id"]
                for one, name in ((old, "of-the-old"), (new, "of-the-new"))
            ]
            for workspace_id in made:
                ours.wait(lambda workspace_id=workspace_id: phase_of(new, workspace_id) == "RUNNING")
                assert phase_of(old, workspace_id) == "RUNNING"
                for door in (old_door, new_door):
                    assert door.get(f"/w/{workspace_id}/").status_code == 200
            # The old coordinator leads while ours does not answer, and stops what it is asked to and nothing else.
            our_leader, paused = leader_of(new), coordinator_of(ours)
            paused.suspend()
            try:
                ours.wait(lambda: leader_of(old) not in ("", our_leader))
                assert old.post(f"/api/v1/workspaces/{made[0]}:stop").status_code == 202
                ours.wait(lambda: phase_of(old, made[0]) == "STANDBY")
                assert phase_of(new, made[1]) == "RUNNING"
                for door in (old_door, new_door):
                    assert door.get(f"/w/{made[1]}/").status_code == 200
            finally:
                paused.resume()
            old_parts["coordinator"].terminate()
            ours.wait(lambda: leader_of(new) == our_leader)
            assert new.post(f"/api/v1/workspaces/{made[0]}:start").status_code == 202
            ours.wait(lambda: phase_of(new, made[0]) == "RUNNING")
            # Each stops what the other created.
            for one, workspace_id in zip((new, old), made, strict=True):
                assert one.post(f"/api/v1/workspaces/{workspace_id}:stop").status_code in (200, 202)
                ours.wait(lambda workspace_id=workspace_id: phase_of(old, workspace_id) == "STANDBY")
                assert phase_of(new, workspace_id) == "STANDBY"
            # Their sign-ins work in their own version.
            for one in (old, new):
                credentials = {"username": "admin", "password": PASSWORD}
                assert one.post("/api/v1/login", json=credentials).status_code == 200
