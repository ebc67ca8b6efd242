"""From the first release to ours: its installation goes on in ours, and its processes run beside ours meanwhile."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from testing.codehub.dashboard import PASSWORD
from testing.codehub.first_release import TREE, tree_of, unpack_first_release
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.tiny_ide import run_through_proxy
from testing.ports import free_ports

# In a workspace: when the IDE that runs this was started, in ticks since boot.
STARTED_AT = "cut -d ' ' -f 22 /proc/$PPID/stat"

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600)]


@pytest.fixture
def first_release(tmp_path: Path) -> Path:
    return unpack_first_release(tmp_path)


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


def _is_in(phase: str, client: httpx.Client, workspace_id: str) -> bool:
    return phase_of(client, workspace_id) == phase


def leader_of(client: httpx.Client) -> str:
    leader = client.get("/health/coordinator").json().get("leader") or {}
    return str(leader.get("holder_id", ""))


def coordinator_of(stack: Stack) -> psutil.Process:
    assert stack.process is not None
    children = psutil.Process(stack.process.pid).children(recursive=True)
    return next(child for child in children if child.cmdline()[-2:] == ["serve", "coordinator"])


def test_what_is_called_the_first_release_is_it(first_release: Path, tmp_path: Path) -> None:
    assert tree_of(first_release, tmp_path / "git") == TREE


def test_an_installation_of_the_first_release_goes_on_in_ours_with_everything_in_it(first_release: Path) -> None:
    """The first release itself writes database, homes, archives and records of what runs; then ours is started."""
    api, proxy = free_ports(2)
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
            "LIMITS_MAX_RUNNING_PER_USER": "3",
            "PYTHONPATH": str(first_release),
        }
        stack.up()
        with httpx.Client(base_url=f"http://127.0.0.1:{api}", timeout=60, trust_env=False) as client:
            credentials = {"username": "admin", "password": PASSWORD}
            assert client.post("/api/v1/login", json=credentials).status_code == 200
            token = client.post("/api/v1/tokens", json={"name": "kept"}).json()["token"]
            client.cookies.clear()
            client.headers["Authorization"] = f"Bearer {token}"

            def run_in(workspace_id: str, text: str) -> str:
                answer = run_through_proxy(proxy, workspace_id, token, text)
                assert answer.status_code == 200, answer.text
                return answer.text

            def ask(workspace_id: str, verb: str, phase: str) -> None:
                assert client.post(f"/api/v1/workspaces/{workspace_id}:{verb}").status_code == 202
                stack.wait(lambda: phase_of(client, workspace_id) == phase)

            made = {}
            for name in ("running", "asleep", "archived"):
                made[name] = client.post("/api/v1/workspaces", json={"name": name}).json()["id"]
                stack.wait(functools.partial(_is_in, "RUNNING", client, made[name]))
                run_in(made[name], f"echo 'written in {name}' > note; chmod 640 note; ln -s note link")
            ask(made["asleep"], "stop", "STANDBY")
            ask(made["archived"], "archive", "ARCHIVED")
            since = run_in(made["running"], STARTED_AT)
            assert stack.run("down", "--keep-workspaces").returncode == 0
            assert stack.process is not None
            stack.process.wait(60)

            del stack.environment["PYTHONPATH"]
            stack.up()
            assert run_in(made["running"], STARTED_AT) == since, "what ran is not restarted by an upgrade"
            assert run_in(made["running"], "cat link; stat -c %a note") == "written in running\n640\n"
            for name in ("asleep", "archived"):
                ask(made[name], "start", "RUNNING")
                assert run_in(made[name], "cat link; stat -c %a note") == f"written in {name}\n640\n"
            # Ours archives and restores what the first release created and started.
            ask(made["running"], "archive", "ARCHIVED")
            ask(made["running"], "start", "RUNNING")
            assert run_in(made["running"], "cat link; stat -c %a note") == "written in running\n640\n"
            events = client.get(f"/api/v1/workspaces/{made['archived']}/events?per_page=100").json()["items"]
            assert events[-1]["kind"] == "created", "the timeline goes back to before the upgrade"


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
            ours.wait(lambda: answers(old, "/health/ready") and answers(old_door, "/health"))
            # What one creates, the other shows; our coordinator leads and starts both.
            made = [
                one.post("/api/v1/workspaces", json={"name": name}).json()["id"]
                for one, name in ((old, "of-the-old"), (new, "of-the-new"))
            ]
            for workspace_id in made:
                ours.wait(functools.partial(_is_in, "RUNNING", new, workspace_id))
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
                ours.wait(functools.partial(_is_in, "STANDBY", old, workspace_id))
                assert phase_of(new, workspace_id) == "STANDBY"
            # Their sign-ins work in their own version.
            for one in (old, new):
                credentials = {"username": "admin", "password": PASSWORD}
                assert one.post("/api/v1/login", json=credentials).status_code == 200
