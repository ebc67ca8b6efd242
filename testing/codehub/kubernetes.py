"""The real node of `make kubernetes-up` for tests: a namespace per test, an image without a registry, its programs.

Runs only inside the node's namespaces (scripts/kubernetes/exec.sh), whose environment contains its location.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import ClaimOptions, PvcHomes
from codehub.adapters.kubernetes.kubeconfig import find_access
from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.kubernetes.objects import decode_claim
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.workspace_tools import stage_tools, tools_version
from codehub.ports.homes import HomeKey
from testing.codehub.docker import tiny_root

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts/kubernetes"
DEPLOY = ROOT / "deploy/kubernetes"
# A current one: the node's own is too old for the overlays' format.
KUBECTL = Path(sys.executable).parent / "kubectl"
# The tests' IDE, and CodeHub itself for its Jobs: one image, so that one import is enough.
IMAGE = "docker.io/codehub-test/workspace:1"
# No Python, no SSH server, and another user of the number that workspaces run as.
PLAIN_IMAGE = "docker.io/codehub-test/plain:1"
# As the shipped images start their IDE.
_START = "w=/opt/codehub/bin/with-environment; [ -x $w ] || w=; exec $w /usr/bin/python3 -u /tiny.py 8080 ID 0.0.0.0"
TIMEOUT_S = 240.0  # kubelet and API server on a busy machine
SMALL = PodOptions(
    cpu_limit="1", memory_limit="256Mi", cpu_request="10m", memory_request="32Mi", ephemeral_storage="1Gi", grace_s=2
)


def lab() -> Path:
    return Path(os.environ["CODEHUB_TEST_KUBERNETES"])


@dataclass(frozen=True)
class Node:
    """The node and its programs."""

    lab: Path

    def ctr(self, *arguments: str) -> str:
        command = ["ctr", "-a", str(self.lab / "containerd/c.sock"), "-n", "k8s.io", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        done = subprocess.run(["kubectl", *arguments], check=False, capture_output=True, text=True, input=given)
        assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def wait_ready(self) -> None:
        """Wait until the node controller reports the node as Ready."""
        self._wait(lambda: " Ready " in self.kubectl("get", "node", "node1", "--no-headers", check=False))

    def wait_api(self) -> None:
        """Wait until an API server that was started accepts every request. It answers earlier, but refuses some.

        It exits if one of its own hooks takes too long on a busy machine. It is started again then, as a kubelet would.
        """

        def is_ready() -> bool:
            if self.kubectl("get", "--raw", "/readyz", check=False) == "ok":
                return True
            if self._has_ended("apiserver"):
                self.program("start", "apiserver")
            return False

        self._wait(is_ready)

    def _has_ended(self, name: str) -> bool:
        return subprocess.run([SCRIPTS / "restart.sh", "ended", name], check=False).returncode == 0

    def _wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            log = (self.lab / "run/log/apiserver.log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"the node does not become ready; its API server's log: {log}"
            time.sleep(0.2)

    def program(self, action: str, name: str) -> None:
        """Kill, stop or start etcd, apiserver, kubelet, containerd, …"""
        subprocess.run([SCRIPTS / "restart.sh", action, name], check=True, capture_output=True)

    def load_plain_image(self) -> None:
        busybox = Path(os.environ["CODEHUB_TEST_KUBERNETES_PROGRAMS"]) / "bin/busybox"
        with tempfile.TemporaryDirectory() as folder:
            root, archive = Path(folder) / "root", Path(folder) / "plain.tar"
            for name in ("bin", "etc", "www", "tmp", "home/node"):
                (root / name).mkdir(parents=True)
            (root / "tmp").chmod(0o1777)
            shutil.copy(busybox, root / "bin/busybox")
            for name in ("sh", "id", "cat", "ls", "sleep", "sha256sum"):
                (root / "bin" / name).symlink_to("busybox")
            (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n")
            (root / "etc/group").write_text("root:x:0:\nnode:x:1000:\n")
            (root / "www/index.html").write_text("plain\n")
            entrypoint = json.dumps(["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"])
            words = [str(archive), PLAIN_IMAGE.removeprefix("docker.io/"), entrypoint, str(root)]
            subprocess.run([sys.executable, SCRIPTS / "image.py", *words], check=True)
            self.ctr("images", "import", str(archive))

    def load_image(self) -> None:
        archive = self.lab / "images/workspace.tar"
        layer = image_root()
        digest = hashlib.sha256(layer + _START.encode()).hexdigest()
        stamp = self.lab / "images/workspace.digest"
        if not archive.exists() or not stamp.exists() or stamp.read_text() != digest:
            layer_file = self.lab / "images/workspace.layer"
            layer_file.write_bytes(layer)
            entrypoint = json.dumps(["/bin/sh", "-c", _START])
            subprocess.run(
                [
                    sys.executable,
                    SCRIPTS / "image.py",
                    archive,
                    IMAGE.removeprefix("docker.io/"),
                    entrypoint,
                    layer_file,
                ],
                check=True,
            )
            layer_file.unlink()
            stamp.write_text(digest)
        self.ctr("images", "import", str(archive))


def rendered(overlay: str) -> list[dict[str, Any]]:
    """Return the objects of one of deploy/kubernetes' overlays."""
    command: list[str | Path] = [KUBECTL, "kustomize", DEPLOY / "overlays" / overlay]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def image_root() -> bytes:
    """Return this machine's Python with the tests' IDE and the parts of CodeHub that run in a Job."""
    zstandard = Path(str(importlib.import_module("zstandard").__file__)).parent
    libraries = (*zstandard.glob("*.so"), *Path("/usr/lib/python3.11/lib-dynload").glob("_ctypes.*.so"))
    root = tiny_root(libraries)
    source = ROOT / "packages/codehub/src/codehub"
    place = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages"
    buffer = io.BytesIO(root)
    with tarfile.open(fileobj=buffer, mode="a") as out:
        for base, name in ((source, "codehub"), (zstandard, "zstandard")):
            for path in sorted(base.rglob("*")):
                if path.is_file() and path.suffix in (".py", ".so") and "__pycache__" not in path.parts:
                    _add(out, path, f"{place}/{name}/{path.relative_to(base)}")
        for path, name in tools().items():
            _add(out, path, name)
    return buffer.getvalue()


def tools() -> dict[Path, str]:
    """Return CodeHub's tools for workspaces, with their paths in CodeHub's image. Prepared once per version of them."""
    place = lab() / "images" / f"tools-{tools_version()}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=lab()) as folder:
            staged = Path(folder) / "tools"
            stage_tools(staged)
            staged.rename(place)
    return {
        path: f"usr/share/codehub/tools/{path.relative_to(place)}"
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def _add(out: tarfile.TarFile, path: Path, name: str) -> None:
    info = out.gettarinfo(path, name)
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    with path.open("rb") as file:
        out.addfile(info, file)


@pytest.fixture(scope="session")
def node() -> Node:
    found = Node(lab())
    found.load_image()
    return found


@contextlib.contextmanager
def fresh_namespace(node: Node) -> Iterator[str]:
    """Yield a new namespace, under the restricted standard if the server enforces it."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    node.kubectl("create", "-f", "-", given=json.dumps(manifest))
    try:
        yield name
    finally:
        # Do not wait: terminating takes as long as the slowest pod.
        node.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def namespace(node: Node) -> Iterator[str]:
    """Yield a namespace for one test."""
    with fresh_namespace(node) as name:
        yield name


def admin_client(namespace: str) -> ApiClient:
    return ApiClient(find_access(os.environ, namespace=namespace))


@pytest.fixture
async def cluster(namespace: str) -> AsyncIterator[Cluster]:
    """Yield the cluster as an installation that no other test uses."""
    found = Cluster(admin_client(namespace), f"test-{uuid.uuid4()}")
    try:
        yield found
    finally:
        await found.close()


@dataclass(frozen=True)
class PvcWorld:
    """The world for HomesContract."""

    cluster: Cluster
    homes: PvcHomes
    archives: ObjectArchives
    store: Store

    async def files(self, home: HomeKey) -> Path | None:
        """Return where the node keeps the volume, or None if no volume was needed yet."""
        path = self.cluster.claims_path
        items, _ = await self.cluster.client.list_all(path)
        claims = [decode_claim(item) for item in items]
        ours = [one for one in claims if one.meta.workspace_id == home.workspace_id and one.volume]
        if not ours:
            return None
        volume = await self.cluster.client.get(f"/api/v1/persistentvolumes/{ours[-1].volume}")
        return None if volume is None else Path(volume["spec"]["hostPath"]["path"])

    async def bind(self, home: HomeKey) -> Path:
        """Have the volume created, as if a pod that needs it had been scheduled."""
        for claim in await self.cluster.home_claims(home.workspace_id):
            patch = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node1"}}}
            await self.cluster.client.patch(f"{self.cluster.claims_path}/{claim.meta.name}", patch)
        async with asyncio.timeout(TIMEOUT_S):
            while (found := await self.files(home)) is None or not found.is_dir():
                await asyncio.sleep(0.05)
        return found

    async def write(self, home: HomeKey, files: Mapping[str, bytes]) -> None:
        base = await self.bind(home)
        for name, content in files.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for path in base.rglob("*"):
            os.chown(path, 1000, 1000, follow_symlinks=False)

    async def read(self, home: HomeKey) -> Mapping[str, bytes]:
        base = await self.files(home)
        if base is None:
            return {}
        return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}

    async def lose(self, home: HomeKey) -> None:
        for claim in await self.cluster.home_claims(home.workspace_id):
            await self.cluster.client.delete(f"{self.cluster.claims_path}/{claim.meta.name}", claim.meta.uid)
        assert await self.cluster.claims.wait_until(
            lambda: not self.cluster.claims.known_of(home.workspace_id), TIMEOUT_S
        ), "the claim goes"


def pvc_world(cluster: Cluster, store: Store, **options: Any) -> PvcWorld:
    claims = ClaimOptions(storage_class="codehub-test", size="100Mi")
    homes = PvcHomes(cluster, store, IMAGE, claims=claims, pods=SMALL, **options)
    return PvcWorld(cluster, homes, ObjectArchives(store), store)
