"""The complete lifecycle of a workspace on a real stack with containers and S3.

It is created by the API, used through the proxy, stopped, archived (its volume removed), restored and started, and its file
still exists. Runs with the tests' tiny image or the shipped ones.

`python -m testing.codehub.container_walkthrough` builds the shipped images on a dedicated engine, runs the walkthrough with
each, prints the results and rewrites docs/show-docker.md: `make show-docker`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.objectstore.store import Store
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.objectstore import S3Server, running_s3_server

ROOT = Path(__file__).resolve().parents[2]
_TINY = f"""
[profiles.tiny]
image = "{TINY_IMAGE}"
health_path = "/healthz"
[profiles.greedy]
image = "{TINY_IMAGE}"
health_path = "/healthz"
env = {{ EAT = "all of it" }}
[profiles.quitter]
image = "{TINY_IMAGE}"
health_path = "/healthz"
env = {{ QUIT = "3" }}
[profiles.missing]
image = "codehub-test/none:1"
"""


def nothing_said(text: str) -> None:
    """Print nothing, for tests, which check the results themselves."""


@dataclass
class Walk:
    """One stack on one engine and one S3 store."""

    stack: Stack
    engine: DockerEngine
    store: Store
    say: Callable[[str], None] = nothing_said

    @contextlib.contextmanager
    def signed_in(self) -> Iterator[httpx.Client]:
        with self.stack.client() as client:
            token = client.post("/api/v1/tokens", json={"name": "walk"}).json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            yield client

    def create(self, client: httpx.Client, image_ref: str) -> str:
        name = f"{image_ref} {uuid.uuid4().hex[:6]}"  # an owner's names are unique
        made = client.post("/api/v1/workspaces", json={"name": name, "image_ref": image_ref})
        assert made.status_code == 201, made.text
        self.say(f"POST /api/v1/workspaces {{image_ref: {image_ref}}} → 201 {made.json()['id']}")
        return str(made.json()["id"])

    def reach(self, client: httpx.Client, workspace_id: str, phase: str) -> dict[str, object]:
        seen: dict[str, object] = {}

        def there() -> bool:
            seen.update(client.get(f"/api/v1/workspaces/{workspace_id}").json())
            return (seen["phase"], seen["operation"]) == (phase, "NONE")

        began = time.monotonic()
        self.stack.wait(there)
        self.say(f"{phase} after {time.monotonic() - began:.1f} s")
        return seen

    def ask(self, client: httpx.Client, workspace_id: str, action: str, phase: str) -> None:
        answer = client.post(f"/api/v1/workspaces/{workspace_id}:{action}")
        assert answer.status_code == 202, answer.text
        self.say(f"POST :{action} → 202")
        self.reach(client, workspace_id, phase)

    def page(self, client: httpx.Client, workspace_id: str, path: str, method: str = "GET", body: str = "") -> str:
        """Request a page through the proxy, as a browser would."""
        port = self.stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
        url = f"http://127.0.0.1:{port}/w/{workspace_id}{path}"
        headers = {"Authorization": client.headers["Authorization"], "Host": f"localhost:{port}"}
        with httpx.Client(timeout=60, trust_env=False, follow_redirects=False) as plain:
            answer = plain.request(method, url, headers=headers, content=body or None)
        self.say(f"{method} /w/{{id}}{path} → {answer.status_code}, {len(answer.content)} bytes")
        assert answer.status_code < 400, answer.text
        return answer.text

    def volumes(self, workspace_id: str) -> list[Path]:
        return list((self.stack.data_dir / "homes").glob(f"users/*/workspaces/{workspace_id}"))

    def archives(self) -> list[str]:
        return sorted(path for path in self.store.paths() if path.endswith(".zst"))

    def containers(self) -> list[str]:
        with self.engine.client() as client:
            listed = client.get("http://docker/containers/json", params={"all": "true"}).json()
        return sorted(item["Names"][0].lstrip("/") for item in listed)

    def file_survives(self, client: httpx.Client, image_ref: str, health: str, page: str) -> str:
        """Check that a file survives the complete lifecycle, and return the workspace's id."""
        workspace_id = self.create(client, image_ref)
        self.reach(client, workspace_id, "RUNNING")
        self.page(client, workspace_id, health)
        assert self.page(client, workspace_id, page)
        container = f"codehub-ws-{workspace_id}"
        written = self.engine.run_in(container, "umask 027; echo 'written inside' > ~/note && id -u && cat ~/note")
        self.say(f"in the container: id -u; cat ~/note → {written.split(chr(10))}")
        assert written.endswith("written inside\n")
        self.ask(client, workspace_id, "stop", "STANDBY")
        self.ask(client, workspace_id, "start", "RUNNING")
        assert self.engine.run_in(container, "cat ~/note") == "written inside\n"
        self.say("the file is there after stop and start")
        self.ask(client, workspace_id, "archive", "ARCHIVED")
        assert self.volumes(workspace_id) == []
        assert container not in self.containers()
        mine = [key for key in self.archives() if key.startswith(workspace_id)]
        assert len(mine) == 1, mine
        self.say(f"the volume is gone; the store holds {mine[0]} ({self.store.size(mine[0])} bytes) and its meta")
        self.ask(client, workspace_id, "start", "RUNNING")
        shown = self.engine.run_in(container, "cat ~/note; ls -ln ~/note").split()
        assert shown[:5] == ["written", "inside", "-rw-r-----", "1", str(container_uid_for(workspace_id))], shown
        self.page(client, workspace_id, health)
        self.say("restored and started: the file is there, 640, its user's, and the IDE answers")
        return workspace_id


@contextlib.contextmanager
def docker_stack(engine: DockerEngine, server: S3Server, *, up: bool = True, **environment: str) -> Iterator[Walk]:
    """Yield a stack with `CODEHUB_RUNTIME=docker` and `CODEHUB_ARCHIVE_URL=s3://…`, by default started."""
    store = server.fresh()
    with fresh_stack() as stack:
        stack.environment |= {
            "CODEHUB_RUNTIME": "docker",
            "DOCKER_HOST": engine.host,
            **server.environment(store),
            "LIMITS_MAX_RUNNING_PER_USER": "60",
            **environment,
        }
        if up:
            stack.up()
        try:
            yield Walk(stack, engine, store)
        finally:
            store.close()


def tiny_profiles(place: Path) -> dict[str, str]:
    profiles = place / "tiny-profiles.toml"
    profiles.write_text(_TINY)
    return {"CODEHUB_PROFILES_FILE": str(profiles), "CODEHUB_DEFAULT_PROFILE": "tiny"}


def build_images(engine: DockerEngine) -> None:
    """Run images/build.sh as shipped."""
    environment = {**os.environ, "DOCKER_HOST": engine.host, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    done = subprocess.run([ROOT / "images/build.sh"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def walk_with_shipped_images(engine: DockerEngine, say: Callable[[str], None]) -> None:
    """Run code-server and JupyterLab as containers, archived to S3."""
    with tempfile.TemporaryDirectory() as place, running_s3_server(Path(place)) as server:
        with docker_stack(engine, server) as walk, walk.signed_in() as client:
            walk.say = say
            for image_ref, health, page in (
                ("code-server", "/healthz", "/?folder=/home/coder"),
                ("jupyterlab", "/api", "/lab"),
            ):
                say(f"\n## {image_ref}\n")
                walk.file_survives(client, image_ref, health, page)


def main() -> int:
    """With DOCKER_SOCKET_DIR=DIR, use an engine that already has the images and listens on DIR/docker.sock."""
    given = os.environ.get("DOCKER_SOCKET_DIR")
    engine = DockerEngine(Path(given or tempfile.mkdtemp(prefix="chdocker-", dir="/var/tmp")))
    said: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        said.append(text.strip())

    began = time.monotonic()
    try:
        if given is None:
            engine.start()
            build_images(engine)
        built = time.monotonic()
        walk_with_shipped_images(engine, say)
        _write_down(said, (built - began) / 60, (time.monotonic() - built) / 60)
    finally:
        if given is None:
            engine.stop()
    return 0


def _write_down(said: list[str], building_min: float, walking_min: float) -> None:
    """Rewrite the page. Keeps the text before the first session, except for its figures."""
    page = ROOT / "docs/show-docker.md"
    head = page.read_text().partition("\n## ")[0]
    head = re.sub(r"\d{4}-\d\d-\d\d", time.strftime("%Y-%m-%d"), head)
    head = re.sub(r"[\d.]+ min for the sessions", f"{walking_min:.1f} min for the sessions", head)
    if building_min > 0.1:
        head = re.sub(r"[\d.]+ min for the images", f"{building_min:.1f} min for the images", head)
    walks = "\n".join(said).split("## ")[1:]
    parts = [f"## {name}\n\n```text\n{text.strip()}\n```\n" for name, _, text in (w.partition("\n") for w in walks)]
    page.write_text("\n".join([head, *parts]))


if __name__ == "__main__":
    sys.exit(main())
