"""A running CodeHub for tests of repositories: workspaces created from one, and the results of their setup."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S, Stack


@dataclass(frozen=True)
class Made(Doors):
    """One workspace, and its setup."""

    def view(self) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.get(self.api).json())

    def setup(self) -> dict[str, Any]:
        return dict(self.view()["setup"] or {"state": "none", "steps": []})

    def step(self, id_: str) -> dict[str, Any]:
        found = [step for step in self.setup()["steps"] if step["id"].startswith(id_)]
        return dict(found[0]) if found else {"state": "none", "message": ""}

    def until_setup(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            now = self.setup()
            if done(now):
                return now
            assert time.monotonic() < deadline, (now, self.stack.output()[-3000:])
            time.sleep(0.1)

    def settled(self) -> dict[str, Any]:
        """Return the setup when every step has ended."""
        over = ("done", "failed", "skipped")
        return self.until_setup(
            lambda now: (
                now["state"] in ("done", "failed")
                and bool(now["steps"])
                and all(step["state"] in over for step in now["steps"])
            )
        )

    def files(self) -> Path:
        """Return its home on this machine."""
        (home,) = self.stack.data_dir.glob(f"homes/users/*/workspaces/{self.workspace_id}/home/files")
        return home

    def put(self, state: str, phase: str) -> None:
        with self.client() as client:
            answer = client.patch(self.api, json={"desired_state": state})
            assert answer.status_code == 200, answer.text
        self.until(phase)


@dataclass(frozen=True)
class Repositories:
    stack: Stack
    token: str

    def doors(self, workspace_id: str = "") -> Made:
        return Made(self.stack, workspace_id, self.token)

    def create(self, name: str, **body: object) -> Made:
        with self.doors().client() as client:
            created = client.post("/api/v1/workspaces", json={"name": name, **body})
        assert created.status_code == 201, created.text
        return self.doors(created.json()["id"])

    def delete_all(self) -> None:
        with self.doors().client() as client:
            for item in client.get("/api/v1/workspaces").json()["items"]:
                client.delete(f"/api/v1/workspaces/{item['id']}", params={"force": "true"})

    def forget_credentials(self) -> None:
        for item in self.ask("GET", "git-credentials")["items"]:
            self.ask("DELETE", f"git-credentials/{item['id']}")
        with self.doors().client() as client:
            assert client.delete("/api/v1/git-key").status_code in (204, 404)

    def ask(self, method: str, path: str, json: object = None) -> Any:
        with self.doors().client() as client:
            answer = client.request(method, f"/api/v1/{path}", json=json)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def codehub(self, *words: str, stdin: bytes = b"") -> str:
        done = self.doors().codehub(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


def open_repositories(stack: Stack) -> Repositories:
    with stack.client() as client:
        made = client.post("/api/v1/tokens", json={"name": "repositories"})
        assert made.status_code == 201, made.text
    return Repositories(stack, made.json()["token"])
