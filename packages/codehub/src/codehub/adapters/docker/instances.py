"""Workspaces as containers: created hardened, found by label, resolved by their published port.

A container is one start of one instance: a stopped one is replaced, not started again, so its id is the identity that
changes with every start. Knows nothing of the database.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codehub.adapters.docker.engine import INSTALLATION, WORKSPACE, Engine
from codehub.adapters.docker.images import ensure_image
from codehub.adapters.docker.network import Network
from codehub.adapters.filesystem.ownership import own
from codehub.adapters.health import answers, filled, secret_of
from codehub.domain.errors import BackendDown, ImagePullFailed, Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile, Runs
from codehub.domain.routing import workspace_path
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, MountKind, Upstream, spec_digest

ROLE_INSTANCE = "instance"
HOME = "/home/coder"
CONTAINER_UID = 1000
_SPEC, _SECRET = "codehub.spec", "codehub.secret-header"
_ASKED_TO = {0, 143}  # ended by itself in order, or by our TERM


@dataclass(frozen=True, slots=True)
class DockerLimits:
    memory_bytes: int = 4 << 30
    cpus: float = 2.0
    pids: int = 2048
    grace_s: int = 10

    def __str__(self) -> str:
        return f"{self.memory_bytes}/{self.cpus}/{self.pids}"


@dataclass(frozen=True, slots=True)
class HomesSeen:
    """Where homes are for us and for the engine, when those differ."""

    ours: Path | None = None
    engines: Path | None = None


class DockerInstances:
    name = "local-docker"
    runs = Runs.IMAGE

    def __init__(self, engine: Engine, limits: DockerLimits | None = None, homes: HomesSeen | None = None) -> None:
        self._engine = engine
        self._limits = limits or DockerLimits()
        self._homes = homes or HomesSeen()
        self.network = Network(engine)

    @property
    def uid(self) -> int:
        """Root gives homes to the images' user; another user keeps his own, and runs the container as himself."""
        return CONTAINER_UID if os.geteuid() == 0 else os.geteuid()

    async def ping(self) -> None:
        await self._engine.ping()

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        name = container_name(spec.workspace_id)
        digest = spec_digest(spec, f"{self._limits}/{self.uid}")
        found = await self._find(spec.workspace_id)
        if found is not None:
            labels = found["Config"]["Labels"] or {}
            if found["State"]["Running"] and labels.get(_SPEC) == digest and not replace:
                return
        await ensure_image(self._engine, spec.image, report)
        network = await self.network.ensure()
        await asyncio.to_thread(self._own_home, spec)
        fence()
        if found is not None:
            await self._remove(found["Id"])
        report(Progress("start", 0, 1, "steps"))
        config = self._config(spec, digest, network)
        fence()
        created = await self._create(name, config)
        await self._engine.send("POST", f"containers/{created}/start", timeout_s=120)

    async def _create(self, name: str, config: dict[str, object]) -> str:
        try:
            made = await self._engine.send("POST", "containers/create", config, timeout_s=120, params={"name": name})
        except Transient as error:
            if "No such image" in str(error):
                raise ImagePullFailed(f"the image {config['Image']} is not there any more") from error
            raise
        return str(made["Id"])

    def _own_home(self, spec: InstanceSpec) -> None:
        """A new home belongs to root; the container's user must be able to write to it."""
        if spec.mount.kind is not MountKind.DIR or os.geteuid() != 0:
            return
        path = Path(spec.mount.source)
        if self._homes.ours is not None and self._homes.engines is not None:
            path = self._homes.ours / path.relative_to(self._homes.engines)
        if path.is_dir():
            own(path, self.uid)

    def _config(self, spec: InstanceSpec, digest: str, network: str) -> dict[str, object]:
        profile = spec.profile
        secret = secrets.token_urlsafe(32)
        values = {
            "port": str(profile.port),
            "socket": "",
            "base_path": workspace_path(spec.workspace_id),
            "home": HOME,
            "id": spec.workspace_id,
            "secret": secret,
        }
        env = {
            "HOME": HOME,
            "CODEHUB_WORKSPACE_ID": spec.workspace_id,
            "CODEHUB_BASE_PATH": values["base_path"],
            "CODEHUB_PORT": values["port"],
        }
        # The template's never take the place of ours, nor of what the profile needs to run.
        env = dict(spec.env) | env | {key: filled(value, values) for key, value in profile.env.items()}
        memory = spec.size.memory_bytes or self._limits.memory_bytes
        cpus = spec.size.cpus or self._limits.cpus
        header = secret_of(profile, secret)
        labels = self._engine.labels(spec.workspace_id, ROLE_INSTANCE) | {_SPEC: digest}
        if header is not None:
            labels[_SECRET] = f"{header[0]}: {header[1]}"
        mount: dict[str, object] = {"Target": HOME, "Source": spec.mount.source}
        if spec.mount.kind is MountKind.VOLUME:
            mount |= {"Type": "volume", "VolumeOptions": {"NoCopy": True}}
        else:
            mount |= {"Type": "bind"}
        port = f"{profile.port}/tcp"
        return {
            "Image": spec.image,
            "Env": [f"{key}={value}" for key, value in env.items()],
            "User": f"{self.uid}:{CONTAINER_UID if os.geteuid() == 0 else os.getegid()}",
            "WorkingDir": HOME,
            "Labels": labels,
            "ExposedPorts": {port: {}},
            "HostConfig": {
                "Init": True,
                "Mounts": [mount],
                "NetworkMode": network,
                "PortBindings": {port: [{"HostIp": "127.0.0.1", "HostPort": ""}]},
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges:true"],
                "Memory": memory,
                "MemorySwap": memory,
                "NanoCpus": int(cpus * 1e9),
                "PidsLimit": self._limits.pids,
                "RestartPolicy": {"Name": "no"},
                "LogConfig": {"Type": "json-file", "Config": {"max-size": "8m", "max-file": "2"}},
            },
        }

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        found = await self._find(workspace_id)
        if found is None or not found["State"]["Running"]:
            return
        fence()
        grace = self._limits.grace_s
        await self._engine.send(
            "POST",
            f"containers/{found['Id']}/stop",
            absent_is_none=True,
            timeout_s=grace + 60,
            params={"t": str(grace)},
        )

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        await self.stop(workspace_id, fence)
        found = await self._find(workspace_id)
        if found is not None:
            fence()
            await self._remove(found["Id"])

    async def _remove(self, container: str) -> None:
        await self._engine.remove(f"containers/{container}", force="true", v="true")
        async with asyncio.timeout(60):
            # "In progress" is success for the engine, but the name must be free.
            while await self._engine.get(f"containers/{container}/json") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _find(self, workspace_id: str) -> Any:
        name = container_name(workspace_id)
        found = await self._engine.get(f"containers/{name}/json")
        if found is not None:
            self._engine.check_ours(found["Config"].get("Labels"), name)
        return found

    async def status(self, workspace_id: str) -> InstanceStatus:
        found = await self._find(workspace_id)
        if found is None:
            return ABSENT
        ports = (found["NetworkSettings"].get("Ports") or {}).values()
        published = [int(binding["HostPort"]) for bindings in ports for binding in bindings or []]
        return _status(found["Id"], found["Config"]["Labels"], found["State"], published)

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        listed = await self._engine.get("containers/json", all="true", filters=self._engine.filters(ROLE_INSTANCE))
        running = {
            item["Labels"][WORKSPACE]: _status(
                item["Id"],
                item["Labels"],
                {"Running": True},
                [int(port["PublicPort"]) for port in item.get("Ports") or [] if port.get("PublicPort")],
            )
            for item in listed
            if item["State"] == "running"
        }
        others = [item["Labels"][WORKSPACE] for item in listed if item["State"] != "running"]
        rest = await asyncio.gather(*(self.status(workspace_id) for workspace_id in others))
        return running | {w: status for w, status in zip(others, rest, strict=True) if status.exists}

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        upstream = await self.resolve_upstream(workspace_id)
        return upstream is not None and await answers(upstream, workspace_id, profile)

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        return (await self.status(workspace_id)).upstream

    async def watch(self) -> AsyncIterator[str]:
        labels = [f"{INSTALLATION}={self._engine.installation_id}"]
        events = ["start", "die", "oom", "destroy", "stop", "health_status"]
        filters = json.dumps({"type": ["container"], "label": labels, "event": events})
        async with self._engine.stream("events", filters=filters) as response:
            async for line in response.content:
                workspace_id = json.loads(line)["Actor"]["Attributes"].get(WORKSPACE)
                if workspace_id:
                    yield workspace_id
        raise BackendDown("the Docker engine's event stream ended")

    async def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        found = await self._find(workspace_id)
        if found is None:
            return
        params = {"stdout": "true", "stderr": "true", "follow": str(follow).lower(), "tail": str(tail or "all")}
        async with self._engine.stream(f"containers/{found['Id']}/logs", **params) as response:
            while True:
                try:
                    # Eight bytes before each piece: which stream, three zeros, the length.
                    head = await response.content.readexactly(8)
                    yield await response.content.readexactly(int.from_bytes(head[4:], "big"))
                except asyncio.IncompleteReadError:
                    return

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        found = await self._find(workspace_id)
        if found is None or not found["State"]["Running"]:
            return None
        stats = await self._engine.get(f"containers/{found['Id']}/stats", stream="false")
        if not stats or not stats.get("memory_stats"):
            return None
        now, before = stats["cpu_stats"], stats["precpu_stats"]
        spent = now["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"]
        passed = now.get("system_cpu_usage", 0) - before.get("system_cpu_usage", 0)
        cpus = now.get("online_cpus", 1)
        return {
            "cpu_percent": 100.0 * cpus * spent / passed if passed > 0 else 0.0,
            "memory_bytes": float(stats["memory_stats"].get("usage", 0)),
            "memory_limit_bytes": float(stats["memory_stats"].get("limit", 0)),
        }


def container_name(workspace_id: str) -> str:
    return f"codehub-ws-{workspace_id}"


def _status(
    container: str, labels: Mapping[str, str], state: Mapping[str, Any], published: list[int]
) -> InstanceStatus:
    running = bool(state.get("Running"))
    upstream = None
    if running and published:
        name, colon, value = labels.get(_SECRET, "").partition(": ")
        upstream = Upstream(container, "127.0.0.1", published[0], secret=(name, value) if colon else None)
    reason = None
    if not running and state.get("Status") != "created":
        code = int(state.get("ExitCode", 0))
        reason = "OOMKilled" if state.get("OOMKilled") else None if code in _ASKED_TO else f"ExitCode:{code}"
    return InstanceStatus(True, running, container, labels.get(_SPEC, ""), upstream, reason)
