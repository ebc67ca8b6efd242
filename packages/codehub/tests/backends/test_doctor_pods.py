"""`codehub doctor` tries boundaries from Pods: against a small API server that runs a Pod's command as a process here.

What such a process can do depends on how it is run: in this machine's network it reaches everything, in a network of its
own nothing. `packages/codehub/tests/kubernetes/test_doctor_node.py` runs it on a real node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from codehub.cli import boundary_targets, pod_boundaries
from codehub.cli.pod_boundaries import try_in_pods
from codehub.domain.boundaries import Verdict
from codehub.settings import load_settings

pytestmark = [pytest.mark.needs("root"), pytest.mark.timeout(300)]
PODS = "/api/v1/namespaces/workspaces/pods"
NETWORK = {
    "reach the API",
    "reach the proxy",
    "reach the Kubernetes API server",
    "reach the node's kubelet",
    "reach this machine's loopback",
    "reach this machine's network address",
    "reach another workspace's ports",
    "reach another workspace's abstract sockets",
}
# The commands run as root of this machine, without limits, and can read its files.
ALWAYS = {
    "make a user namespace": Verdict.NOT_HELD,
    "take more memory than its limit": Verdict.NOT_HELD,
    "start more processes than its limit": Verdict.NOT_TRIED,
    "reach the database": Verdict.NOT_TRIED,
    "reach Valkey": Verdict.NOT_TRIED,
}


class Pods(ThreadingHTTPServer):
    """The part of the Kubernetes API that doctor uses. `wrapper` comes before each Pod's command."""

    daemon_threads = True

    def __init__(self, place: Path, wrapper: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.place, self.wrapper = place, wrapper
        self.pods: dict[str, dict[str, Any]] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, pod: dict[str, Any]) -> None:
        container, name = pod["spec"]["containers"][0], pod["metadata"]["name"]
        pod["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": "workspaces", "resourceVersion": "1"}
        host, port = self.server_address[:2]
        env = {one["name"]: one["value"] for one in container["env"]}
        env |= {
            "PATH": os.environ["PATH"],
            "KUBERNETES_SERVICE_HOST": str(host),
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        home = self.place / name
        home.mkdir()
        *command, socket = container["command"]
        with (home / "log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [*self.wrapper, *command, str(home / Path(socket).name)],
                env=env | {"HOME": str(home)}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.pods[name] = pod

    def shown(self, name: str) -> dict[str, Any]:
        code = self.running[name].poll()
        state: dict[str, Any] = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        phase = "Running" if code is None else "Succeeded" if code == 0 else "Failed"
        status = {"phase": phase, "containerStatuses": [{"name": "probe", "state": state}]}
        return {**self.pods[name], "status": status | {"podIP": "127.0.0.1", "hostIP": "127.0.0.1"}}

    def end(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running.pop(name).wait()
        del self.pods[name]


class Handler(BaseHTTPRequestHandler):
    server: Pods

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = path.removeprefix(PODS).strip("/").removesuffix("/log")
        if path == PODS:
            items = [self.server.shown(each) for each in self.server.pods]
            self.answer({"kind": "PodList", "items": items, "metadata": {}})
        elif name not in self.server.pods:
            self.answer({"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}, 404)
        elif path.endswith("/log"):
            self.answer((self.server.place / name / "log").read_bytes())
        else:
            self.answer(self.server.shown(name))

    def do_POST(self) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.run(pod)
        self.answer(pod, 201)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.end(self.path.partition("?")[0].removeprefix(PODS + "/"))
        self.answer({"kind": "Status"})

    def answer(self, body: object, status: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def cluster(place: Path, wrapper: list[str]) -> Iterator[tuple[Pods, dict[str, str]]]:
    """Yield the server and the settings of an installation that uses it."""
    server = Pods(place, wrapper)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_address[1]}"
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "workspaces"}}],
    }
    (place / "config").write_text(yaml.safe_dump(config))
    try:
        yield (
            server,
            {
                "CODEHUB_RUNTIME": "kubernetes",
                "CODEHUB_STORAGE": "pvc",
                "CODEHUB_DATA_DIR": str(place),
                "CODEHUB_API_BIND": address,  # something that answers
                "CODEHUB_PROXY_BIND": address,
                "CODEHUB_K8S_IMAGE": "codehub:1",
                "CODEHUB_K8S_NAMESPACE": "workspaces",
                "KUBECONFIG": str(place / "config"),
                "HOME": str(place),
            },
        )
    finally:
        server.shutdown()
        for name in list(server.pods):
            server.end(name)
        server.server_close()


@pytest.fixture(autouse=True)
def nothing_leaves_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A free port here is the kubelet's."""
    monkeypatch.setattr(boundary_targets, "_METADATA", ("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as kubelet:
        monkeypatch.setattr(pod_boundaries, "_KUBELET_PORT", kubelet.getsockname()[1])
        yield


async def verdicts(given: dict[str, str]) -> dict[str, Verdict]:
    return {one.boundary.name: one.verdict for one in await try_in_pods(load_settings(given), 120)}


async def test_a_network_that_enforces_nothing_and_a_token_in_the_pod_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(pod_boundaries, "_TOKEN", str(tmp_path / "token"))
    with cluster(tmp_path, []) as (server, given):
        found = await verdicts(given)
        assert not server.pods, "no Pod is left"
    assert found == {
        **ALWAYS,
        **dict.fromkeys(NETWORK, Verdict.NOT_HELD),
        "read a service account's token": Verdict.NOT_HELD,
        "reach cloud metadata": found["reach cloud metadata"],  # whatever port 80 of this machine is
    }


async def test_what_is_kept_from_a_pod_is_held(tmp_path: Path) -> None:
    with cluster(tmp_path, ["unshare", "--net", "--"]) as (_, given):
        found = await verdicts(given)
    assert found == {
        **ALWAYS,
        **dict.fromkeys(NETWORK, Verdict.HELD),
        "read a service account's token": Verdict.HELD,
        "reach cloud metadata": Verdict.NOT_TRIED,  # silence alone proves nothing
    }


async def test_what_a_killed_doctor_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with cluster(tmp_path, []) as (server, given):
        left = {"metadata": {"name": "codehub-doctor-left"}}
        server.run({**left, "spec": {"containers": [{"command": ["true", "x"], "env": []}]}})
        server.running["codehub-doctor-left"].wait(60)
        await verdicts(given)
        assert not server.pods
