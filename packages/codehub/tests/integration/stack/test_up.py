"""`codehub up` as a user runs it: ready, used, killed with all it started, and up again with everything there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator

import httpx
import psutil
import psycopg
import pytest

from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.tiny_ide import run_through_proxy


@pytest.fixture
def stack() -> Iterator[Stack]:
    with fresh_stack() as made:
        yield made


def test_codehub_is_used_killed_and_up_again_with_everything_there(stack: Stack) -> None:
    stack.up()
    password = (stack.data_dir / "admin-password").read_text().strip()
    assert password in stack.output()
    with stack.client() as client:
        made = client.post("/api/v1/workspaces", json={"name": "kept", "start": False})
        assert made.status_code == 201, made.text
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
        assert client.patch(path, json={"memo": "still here"}).status_code == 200
        assert client.post(f"{path}:stop").status_code == 409

    doctor = stack.run("doctor", "--boundaries-timeout", "120")
    assert doctor.returncode == 0, doctor.stdout
    assert "PROBLEM" not in doctor.stdout
    assert re.search(r"^ok +coordinator +\S+ leads$", doctor.stdout, re.MULTILINE), doctor.stdout
    for part in ("the API", "the proxy", "the database", "Valkey"):
        assert f"reach {part}: held" in doctor.stdout, doctor.stdout
    second = stack.run("up")
    assert second.returncode == 6
    assert "running on" in second.stderr

    stack.kill()
    stack.up()
    assert password not in stack.output()
    with stack.client() as client:
        kept = client.get(path).json()
        assert (kept["name"], kept["memo"], kept["phase"], kept["status"]) == (
            "kept",
            "still here",
            "ARCHIVED",
            "CREATED",
        )
        with psycopg.connect(stack.value("CODEHUB_DATABASE_URL")) as connection:
            assert connection.execute("SELECT count(*) FROM workspaces").fetchone() == (1,)

    down = stack.run("down")
    assert down.returncode == 0, down.stderr
    assert stack.process is not None
    stack.process.wait(60)
    _, alive = psutil.wait_procs(stack.everything, timeout=60)
    assert not alive
    assert "no CodeHub is running in" in stack.run("down").stdout


def test_a_workspace_and_what_was_written_in_it_live_through_a_kill_of_everything_and_an_archive(
    stack: Stack,
) -> None:
    stack.with_tiny_ide()
    stack.up()
    with stack.client() as client:
        token = client.post("/api/v1/tokens", json={"name": "test"}).json()["token"]
        made = client.post("/api/v1/workspaces", json={"name": "alive"})
        assert made.status_code == 201, made.text
        path = f"/api/v1/workspaces/{made.json()['id']}"
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
        led = client.get("/health/coordinator").json()
        assert led["is_leader"] is True, "the API knows that the coordinator of the same `up` leads"

    def run_inside(text: str) -> str:
        port = stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
        answer = run_through_proxy(port, made.json()["id"], token, text)
        assert answer.status_code == 200, answer.text
        return answer.text

    run_inside("echo 'written inside' > note; chmod 640 note")
    stack.kill()
    stack.up()
    assert run_inside("cat note") == "written inside\n"
    with stack.client() as client:
        assert client.get(path).json()["status"] == "RUNNING"
        assert client.post(f"{path}:archive").status_code == 202
        stack.wait(lambda: client.get(path).json()["phase"] == "ARCHIVED")
        assert client.post(f"{path}:start").status_code == 202
        stack.wait(lambda: client.get(path).json()["status"] == "RUNNING")
    assert run_inside("cat note; stat -c %a note") == "written inside\n640\n"
    assert "stopped 1 workspace" in stack.run("down").stdout


def test_an_only_admin_who_forgot_the_password_gets_in_again(stack: Stack) -> None:
    stack.up()
    words = stack.command("admin", "users", "reset")

    def reset(username: str, password: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, username, "--password-stdin"],
            env=stack.environment,
            input=f"{password}\n",
            capture_output=True,
            text=True,
            timeout=60,
        )

    with stack.client() as before:
        assert before.get("/api/v1/workspaces").status_code == 200
        done = reset("admin", "a new one, longer")
        assert done.returncode == 0, done.stderr
        stack.wait(lambda: before.get("/api/v1/workspaces").status_code == 401)
    stack.environment["CODEHUB_ADMIN_PASSWORD"] = "a new one, longer"
    with stack.client() as client:
        assert client.get("/api/v1/whoami").json()["user"]["is_admin"] is True
    assert reset("nobody", "a new one, longer").returncode == 5
    refused = reset("admin", "short")
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False), refused.stderr


def test_a_part_or_a_server_that_dies_is_started_again(stack: Stack) -> None:
    stack.up()
    for part in ("api", "postgres", "valkey", "coordinator", "proxy"):
        (victim,) = stack.processes(part)
        victim.kill()
        stack.wait(lambda part=part, victim=victim: stack.processes(part) not in ([], [victim]))  # type: ignore[misc]
    with httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
        stack.wait(lambda: client.get("/health/ready").status_code == 200)
    with stack.client() as client:
        assert client.get("/api/v1/workspaces").json()["items"] == []


@pytest.mark.parametrize(
    ("environment", "code", "complaint"),
    [
        ({"CODEHUB_API_BIND": "nonsense"}, 2, "CODEHUB_API_BIND='nonsense'"),
        ({"CODEHUB_DATABASE_URL": "mysql://x"}, 2, "CODEHUB_DATABASE_URL"),
        ({"CODEHUB_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}, 7, "database"),
        ({"CODEHUB_DATA_DIR": "/proc/nowhere"}, 2, "CODEHUB_DATA_DIR=/proc/nowhere"),
        ({"TTL_STANDBY_SECONDS": "5"}, 2, "ACTIVITY_FLUSH_INTERVAL"),
    ],
)
def test_what_cannot_work_is_refused_at_start_with_the_variable_named(
    stack: Stack, environment: dict[str, str], code: int, complaint: str
) -> None:
    refused = stack.run("up", **environment)
    assert refused.returncode == code, refused.stderr
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_data_directory_of_a_newer_codehub_is_refused(stack: Stack) -> None:
    (stack.data_dir / "layout").write_text("99\n")
    refused = stack.run("up")
    assert refused.returncode == 2
    assert "newer CodeHub" in refused.stderr
    assert not (stack.data_dir / "postgres").exists()


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_naming_its_holder(stack: Stack) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        bind = f"127.0.0.1:{holder.getsockname()[1]}"
        refused = stack.run("up", CODEHUB_API_BIND=bind)
    assert refused.returncode == 6
    assert bind in refused.stderr
    assert f"pid {os.getpid()}" in refused.stderr
