"""`kubectl apply -k deploy/kubernetes/overlays/trial` on the real node: everything comes up with two of each part, a
workspace opens, and a rolling restart of each part under an open terminal and a running archive loses nothing."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from testing.codehub.kubernetes import DEPLOY, IMAGE, KUBECTL, Node
from testing.codehub.kubernetes_trial import load_trial_images, surroundings, wait_for

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(1500)]
TRIAL = DEPLOY / "overlays/trial"
PARTS = ("api", "proxy", "coordinator")
# As `kubectl apply -k` of the trial, with what the tests' image needs: no change to what is deployed.
OVERLAY = f"""
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [TRIAL]
configMapGenerator:
  - name: codehub
    namespace: codehub
    behavior: merge
    literals:
      - CODEHUB_ALLOWED_IMAGES={IMAGE}
      - CODEHUB_K8S_HOME_SIZE=100Mi
      - LIMITS_MAX_RUNNING_PER_USER=10
      - CODEHUB_K8S_MEMORY_REQUEST=32Mi
      - CODEHUB_INSTANCE_MEMORY=256M
"""


class Trial:
    """The installation as a user sees it, through its Services."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.token = ""

    def address(self, service: str) -> str:
        return self.node.kubectl("get", "service", service, "-n", "codehub", "-o", "jsonpath={.spec.clusterIP}")

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """A new connection each time, as after a restart of what answered before."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = f"http://{self.address('api')}"
        with httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers) as client:
            return client.request(method, path, **given)

    def sign_in(self) -> None:
        url = f"http://{self.address('api')}"
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            body = {"username": "admin", "password": "change-me-trial"}
            answer = client.post("/api/v1/login", json=body)
            assert answer.status_code == 200, answer.text
            key = {"X-CodeHub-Session-Key": answer.json()["session_key"]}
            self.token = client.post("/api/v1/tokens", json={"name": "t"}, headers=key).json()["token"]

    def create(self, name: str) -> str:
        made = self.ask("POST", "/api/v1/workspaces", json={"name": name, "image_ref": IMAGE})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def reach(self, workspace_id: str, phase: str) -> None:
        seen: dict[str, Any] = {}

        def there() -> bool:
            with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                seen.update(self.ask("GET", f"/api/v1/workspaces/{workspace_id}").json())
                return bool((seen["phase"], seen["operation"]) == (phase, "NONE"))
            return False

        try:
            wait_for(there, f"{phase} is not reached")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from None
        assert seen["error_reason"] is None

    def page(self, workspace_id: str, path: str, command: str) -> str:
        """Through the proxy's Service, as a browser."""
        headers = {"Authorization": f"Bearer {self.token}", "Host": "localhost:8001"}
        url = f"http://{self.address('proxy')}/w/{workspace_id}{path}"
        with httpx.Client(timeout=60, trust_env=False) as client:
            answer = client.post(url, headers=headers, content=command)
        assert answer.status_code == 200, answer.text
        return answer.text

    def restart(self, part: str) -> None:
        self.node.kubectl("rollout", "restart", f"deployment/{part}", "-n", "codehub")
        self.settled(part)

    def settled(self, part: str) -> None:
        self.node.kubectl("rollout", "status", f"deployment/{part}", "-n", "codehub", "--timeout=300s")


class Viewer(threading.Thread):
    """An open terminal that reconnects where it stopped, and what it was sent."""

    def __init__(self, trial: Trial, path: str) -> None:
        super().__init__(daemon=True)
        self.trial, self.path = trial, path
        self.text, self.next, self.connections = b"", 0, 0
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                self._read()
            self.ends.wait(0.2)

    def _read(self) -> None:
        url = f"ws://{self.trial.address('api')}{self.path}?after={self.next}"
        headers = {"Authorization": f"Bearer {self.trial.token}"}
        with connect(url, additional_headers=headers, proxy=None, open_timeout=30) as socket:
            self.connections += 1
            while not self.ends.is_set():
                message = socket.recv(timeout=60)
                if isinstance(message, bytes) and message[:1] == b"S":
                    (self.next,) = struct.unpack(">Q", message[1:9])
                if isinstance(message, bytes) and message[:1] == b"O":
                    (begin,) = struct.unpack(">Q", message[1:9])
                    assert begin == self.next, "a byte was lost or came twice"
                    self.text += message[9:]
                    self.next = begin + len(message) - 9
                    socket.send(b"A" + struct.pack(">Q", self.next))


@pytest.fixture(scope="module")
def trial(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    load_trial_images(node)
    overlay = tmp_path_factory.mktemp("overlay")
    relative = Path(*[".."] * (len(overlay.parts) - 1)) / str(TRIAL).lstrip("/")
    (overlay / "kustomization.yaml").write_text(OVERLAY.replace("TRIAL", str(relative)))
    with surroundings(node, "codehub"):
        made = Trial(node)
        try:
            subprocess.run([KUBECTL, "apply", "-k", overlay], check=True, capture_output=True, text=True)
            for part in PARTS:
                made.settled(part)
            made.sign_in()
            yield made
        except (AssertionError, subprocess.CalledProcessError) as error:
            said = node.kubectl("get", "pods,pvc,events", "-n", "codehub")
            raise AssertionError(f"{getattr(error, 'stderr', error)}\n{said}") from None
        finally:
            for namespace in ("codehub-workspaces", "codehub"):
                node.kubectl("delete", "namespace", namespace, "--timeout=180s", check=False)


def test_every_part_is_there_twice_and_a_workspace_opens_writes_sleeps_and_is_restored(
    trial: Trial, node: Node
) -> None:
    for part in PARTS:
        ready = node.kubectl("get", "deployment", part, "-n", "codehub", "-o", "jsonpath={.status.readyReplicas}")
        assert ready == "2", part
    # Stored by a Pod of the API, sent by the coordinator's.
    assert trial.ask("PUT", "/api/v1/secrets/API_TOKEN", json={"value": "s3cret"}).status_code < 300
    workspace_id = trial.create("first")
    trial.reach(workspace_id, "RUNNING")
    assert trial.page(workspace_id, "/run", "echo $API_TOKEN") == "s3cret\n"
    assert trial.page(workspace_id, "/run", "echo kept > ~/note; cat ~/note; id -u") == "kept\n1000\n"
    program = trial.ask("POST", "/api/v1/terminal-program").json()
    assert program["ready"], program
    for verb, phase in (("stop", "STANDBY"), ("archive", "ARCHIVED"), ("start", "RUNNING")):
        assert trial.ask("POST", f"/api/v1/workspaces/{workspace_id}:{verb}").status_code == 202
        trial.reach(workspace_id, phase)
    assert trial.page(workspace_id, "/run", "cat ~/note") == "kept\n"


def test_doctor_in_the_cluster_finds_nothing_but_a_network_that_enforces_no_policy(trial: Trial, node: Node) -> None:
    """As docs/kubernetes.md says to run it. Nothing of it leaves the node, which has no other network."""
    words = ("codehub", "doctor", "--json", "--boundaries-timeout", "120")
    raw = node.kubectl(
        "exec", "-n", "codehub", "deployment/coordinator", "-c", "coordinator", "--", *words, check=False
    )
    found = json.loads(raw)
    assert {"kubernetes", "test pod", "test volume", "secrets key"} <= {
        one["part"] for one in found if one["health"] == "ok"
    }, found
    problems = [one for one in found if one["health"] == "problem" and one["part"] != "workspace image"]
    assert all("NetworkPolicies" in one["fix"] for one in problems), problems
    tried = {one["boundary"] for one in problems}
    assert {"reach the API", "reach the database", "reach another workspace's ports"} <= tried, found
    # Nothing is pulled here: the image is there if another test has loaded it.
    (image,) = [one for one in found if "codehub/code-server:1" in one["message"]]
    is_there = "codehub/code-server:1" in node.ctr("images", "ls", "-q")
    assert image["health"] == ("ok" if is_there else "problem"), image
    assert is_there or "images/build.sh" in image["fix"]


def test_a_rolling_restart_of_each_part_under_an_open_terminal_and_a_running_archive_loses_nothing(
    trial: Trial,
) -> None:
    typed, archived = trial.create("typed"), trial.create("archived")
    for workspace_id in (typed, archived):
        trial.reach(workspace_id, "RUNNING")
    trial.page(archived, "/run", _FILL)
    before = trial.page(archived, "/run", _SUM)
    counting = ["/bin/sh", "-c", "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2; done"]
    body = {"cols": 80, "rows": 24, "command": counting}
    terminals = f"/api/v1/workspaces/{typed}/terminals"
    made = trial.ask("POST", terminals, json=body)
    assert made.status_code == 201, made.text
    viewer = Viewer(trial, f"{terminals}/{made.json()['id']}/attach")
    viewer.start()
    try:
        for part in PARTS:
            wait_for(lambda: b"line" in viewer.text, "the terminal is seen")
            assert trial.ask("POST", f"/api/v1/workspaces/{archived}:archive").status_code == 202
            trial.restart(part)
            trial.reach(archived, "ARCHIVED")
            assert trial.ask("POST", f"/api/v1/workspaces/{archived}:start").status_code == 202
            trial.reach(archived, "RUNNING")
            assert trial.page(archived, "/run", _SUM) == before, part
            at = viewer.next
            wait_for(lambda seen=at: viewer.next > seen, f"the terminal goes on after {part}")
    finally:
        viewer.ends.set()
        viewer.join(90)
    numbers = [int(line.split()[1]) for line in viewer.text.decode().splitlines() if line.startswith("line ")][:-1]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "every line, once"
    assert viewer.connections > 1, "it was reconnected"
    left = json.loads(trial.node.kubectl("get", "jobs,pvc", "-n", "codehub-workspaces", "-o", "json"))["items"]
    assert [one["kind"] for one in left].count("Job") == 0


_SUM = "python3 -c \"import hashlib; print(hashlib.sha256(open('/home/coder/large', 'rb').read()).hexdigest())\""
_FILL = "python3 -c \"import os; open('/home/coder/large', 'wb').write(os.urandom(30_000_000))\""
