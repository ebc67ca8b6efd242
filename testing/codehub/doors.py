"""A running CodeHub with one workspace, its API token, its addresses, and its owner's commands."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from testing.codehub.docker import DOORS_IMAGE, DockerEngine
from testing.codehub.full_stack import TIMEOUT_S, Stack

# Configures a stack that is not started yet for a runtime with the tiny IDE.
Runtime = Callable[[Stack], None]


def on_processes(stack: Stack) -> None:
    stack.with_tiny_ide()


def on_docker(engine: DockerEngine) -> Runtime:
    """Use containers of an image with a shell and the usual tools. CodeHub provides the SSH server and `workspaced`."""
    engine.load_doors_image()

    def on(stack: Stack) -> None:
        profiles = stack.data_dir / "profiles.toml"
        profiles.write_text(f'[profiles.tiny]\nimage = "{DOORS_IMAGE}"\nhealth_path = "/healthz"\n')
        stack.environment |= {
            "CODEHUB_RUNTIME": "docker",
            "DOCKER_HOST": engine.host,
            "CODEHUB_PROFILES_FILE": str(profiles),
            "CODEHUB_DEFAULT_PROFILE": "tiny",
        }

    return on


@dataclass(frozen=True)
class Server:
    """A server in the workspace: its process at the API, and what is listed of its port."""

    process: str
    url: str
    name: str | None


@dataclass(frozen=True)
class Doors:
    stack: Stack
    workspace_id: str
    token: str

    @property
    def api(self) -> str:
        return f"/api/v1/workspaces/{self.workspace_id}"

    def at_proxy(self, path: str) -> str:
        """Return a URL of the proxy that every resolver can resolve, instead of the browser's host name."""
        base = urlsplit(self.stack.value("CODEHUB_WORKSPACE_BASE_URL"))
        return f"{base.scheme}://127.0.0.1:{base.port}{path}"

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.stack.url, headers=headers, timeout=120, trust_env=False)

    def codehub(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run the command as the owner would on their machine."""
        return subprocess.run(
            self.stack.command(*words),
            env={**self.stack.environment, "CODEHUB_SERVER": self.stack.url, "CODEHUB_TOKEN": self.token},
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def sh(self, command: str) -> str:
        with self.client() as client:
            answer = client.post(self.api + "/exec", json={"command": command})
        assert answer.status_code == 200, answer.text
        result = answer.json()
        assert result["exit_code"] == 0, result
        return str(result["stdout"])

    def helper(self) -> int:
        """Return the pid of workspaced: the parent of the process that holds a command."""
        return int(self.sh("cut -d ' ' -f 4 /proc/$PPID/stat"))

    def kill_helper(self, helper: int) -> None:
        """Kill workspaced, and return when it is dead. Its supervisor starts it again."""
        with self.client() as client:
            ended = client.post(self.api + "/exec", json={"command": f"kill -KILL {helper}; sleep 60"})
        assert ended.status_code == 502, ended.text

    def serve(self, command: list[str], port: int) -> Server:
        """Start a server in the workspace, and return when its port is listed."""
        with self.client() as client:
            made = client.post(self.api + "/processes", json={"command": command})
            assert made.status_code == 201, made.text
            process = f"{self.api}/processes/{made.json()['id']}"
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                found = {item["port"]: item for item in client.get(self.api + "/ports").json()["items"]}
                if port in found:
                    return Server(process, found[port]["url"], found[port]["process"])
                state = client.get(process).json()["state"]
                late = time.monotonic() > deadline
                assert (state, late) == ("running", False), client.get(process + "/output").text
                time.sleep(0.1)

    def kill(self, server: Server) -> None:
        with self.client() as client:
            client.post(server.process + "/signal", json={"signal": "KILL"})

    def phase(self) -> str:
        with self.client() as client:
            return str(client.get(self.api).json()["phase"])

    def until(self, phase: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.phase() != phase:
            assert time.monotonic() < deadline, self.stack.output()
            time.sleep(0.1)

    def sleep(self) -> None:
        with self.client() as client:
            client.post(self.api + ":stop")
        self.until("STANDBY")


def open_doors(stack: Stack, name: str = "doors") -> Doors:
    """Create a running workspace and a token of its owner on a started CodeHub."""
    with stack.client() as client:
        made = client.post("/api/v1/tokens", json={"name": "doors"})
        assert made.status_code == 201, made.text
        created = client.post("/api/v1/workspaces", json={"name": name})
        assert created.status_code == 201, created.text
    doors = Doors(stack, created.json()["id"], made.json()["token"])
    doors.until("RUNNING")
    return doors


def token_of_another_user(doors: Doors, name: str) -> str:
    """Create a user, and return their token."""
    with doors.stack.client() as admin:
        made = admin.post("/api/v1/users", json={"username": name, "password": "a long password"})
        assert made.status_code == 201, made.text
    with doors.stack.client(name, "a long password") as session:
        return str(session.post("/api/v1/tokens", json={"name": "t"}).json()["token"])
