"""Workspaces as containers: created hardened, found by label, reached through sockets in a per-start directory.

A container is one start of one instance: a stopped container is replaced, not started again. Its id is therefore the
identity that changes with every start. Knows nothing of the database.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codehub.adapters.docker.container import (
    DockerLimits,
    Plan,
    Surroundings,
    container_config,
    launch_of,
    plan_of,
)
from codehub.adapters.docker.engine import INSTALLATION, WORKSPACE, Engine
from codehub.adapters.docker.images import ImageInfo, ensure_image, inspect_image
from codehub.adapters.docker.network import Network
from codehub.adapters.docker.start_dirs import StartDir, StartDirs, remove_all
from codehub.adapters.docker.tools import IdeTool, Tools
from codehub.adapters.docker.volume_owner import own_volume
from codehub.adapters.filesystem.ownership import container_uid_for, own
from codehub.adapters.health import answers, secret_of
from codehub.adapters.workspaced_launch import by_socket
from codehub.domain.errors import BackendDown, ImagePullFailed, Terminal, Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile, Runs
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, MountKind, Upstream, spec_digest

ROLE_INSTANCE = "instance"
_SPEC, _SECRET = "codehub.spec", "codehub.secret-header"
# The start's directory, the user that it runs as, and the secret of its `workspaced`.
_START, _UID, _WORKSPACED = "codehub.start", "codehub.uid", "codehub.workspaced-secret"
_ASKED_TO = {0, 143}  # it exited normally, or because of our TERM


@dataclass(frozen=True, slots=True)
class HomesSeen:
    """The path of the homes for CodeHub and for the engine, if they differ."""

    ours: Path | None = None
    engines: Path | None = None


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """Options of the Docker backend. `sockets_dir` must have the same path for CodeHub's processes and for the engine."""

    sockets_dir: Path
    limits: DockerLimits = field(default_factory=DockerLimits)
    homes: HomesSeen = field(default_factory=HomesSeen)
    allowed_networks: tuple[str, ...] = ()  # private networks that workspaces may reach


class DockerInstances:
    name = "local-docker"
    runs = Runs.IMAGE

    def __init__(
        self,
        engine: Engine,
        options: DockerOptions,
        ide: IdeTool | None = None,
        *,
        network: Network | None = None,
        plan: Plan | None = None,
        owner_name: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """`network` and `plan` replace the installation's network and the images' own commands, for `codehub doctor`."""
        self._engine = engine
        self._options = options
        self._starts = StartDirs(options.sockets_dir)
        self._images: dict[str, ImageInfo] = {}
        self._looking = asyncio.Lock()
        self.network = network or Network(engine, options.allowed_networks)
        self._plan = plan
        self._owner_name = owner_name
        self.tools = Tools(engine, ide)

    async def ping(self) -> None:
        await self._engine.ping()

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        self._engine.check_local()
        uid = container_uid_for(spec.workspace_id)
        digest = spec_digest(spec, f"{self._options.limits}/{uid}")
        found = await self._find(spec.workspace_id)
        if found is not None:
            labels = found["Config"]["Labels"] or {}
            if found["State"]["Running"] and labels.get(_SPEC) == digest and not replace:
                return
        image = await self._image(spec.image, report)
        plan = self._plan or plan_of(spec, image)
        owner = "" if self._owner_name is None else await self._owner_name(spec.workspace_id)
        tools = await self.tools.mounts(report, ide=plan.brings_ide)
        network = await self.network.ensure()
        machine = os.uname().machine if await self._engine.filters_calls() else ""
        # Directories of earlier starts. Listed before the fence check, so they never include one that a later leader
        # creates.
        before = self._starts.of(spec.workspace_id)
        fence()
        if found is not None:
            await self._remove(found["Id"])
        await self._own_home(spec, uid, tools)
        report(Progress("start", 0, 1, "steps"))
        start, secret, helper = (
            self._starts.new(spec.workspace_id),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
        )
        labels = self._engine.labels(spec.workspace_id, ROLE_INSTANCE) | {
            _SPEC: digest,
            _START: start.name,
            _UID: "" if uid is None else str(uid),
            _WORKSPACED: helper,
        }
        header = secret_of(spec.profile, secret)
        if header is not None:
            labels[_SECRET] = f"{header[0]}: {header[1]}"
        ids = f"{os.geteuid()}:{os.getegid()}" if uid is None else f"{uid}:{uid}"
        around = Surroundings(
            labels, network, ids, self._options.limits, [*tools, *start.mounts()], image.shell, _sysctls(), machine
        )
        fence()
        try:
            await asyncio.to_thread(self._starts.make, start, uid, image, launch_of(spec, plan, helper, owner))
            created = await self._create(spec.workspace_id, container_config(spec, plan, secret, around))
            await self._engine.send("POST", f"containers/{created}/start", timeout_s=120)
        except Transient:
            await asyncio.to_thread(start.remove)
            raise
        await asyncio.to_thread(remove_all, before)

    async def _image(self, image: str, report: Report) -> ImageInfo:
        found = await ensure_image(self._engine, image, report)
        async with self._looking:
            known = self._images.get(found["Id"])
            if known is None:
                known = self._images[found["Id"]] = await inspect_image(self._engine, found)
        return known

    async def _create(self, workspace_id: str, config: dict[str, object]) -> str:
        params = {"name": container_name(workspace_id)}
        try:
            made = await self._engine.send("POST", "containers/create", config, timeout_s=120, params=params)
        except Transient as error:
            if "No such image" in str(error):
                raise ImagePullFailed(f"the image {config['Image']} no longer exists") from error
            raise
        return str(made["Id"])

    async def _own_home(self, spec: InstanceSpec, uid: int | None, tools: list[dict[str, object]]) -> None:
        """Give the home to the workspace's user.

        New homes belong to root, older ones to the user that all workspaces once shared.
        """
        if uid is None:
            return
        if spec.mount.kind is MountKind.VOLUME:
            await own_volume(self._engine, spec.workspace_id, spec.mount.source, uid, tools)
            return
        if spec.mount.kind is not MountKind.DIR:
            raise Terminal(f"a container needs a directory or a volume as its home, not a {spec.mount.kind}")
        path, seen = Path(spec.mount.source), self._options.homes
        if seen.ours is not None and seen.engines is not None:
            path = seen.ours / path.relative_to(seen.engines)
        if await asyncio.to_thread(path.is_dir):
            await asyncio.to_thread(own, path, uid)

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        found = await self._find(workspace_id)
        if found is None or not found["State"]["Running"]:
            return
        fence()
        grace = self._options.limits.grace_s
        await self._engine.send(
            "POST",
            f"containers/{found['Id']}/stop",
            absent_is_none=True,
            timeout_s=grace + 60,
            params={"t": str(grace)},
        )

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        before = self._starts.of(workspace_id)
        await self.stop(workspace_id, fence)
        found = await self._find(workspace_id)
        if found is not None or before:
            fence()
        if found is not None:
            await self._remove(found["Id"])
        await asyncio.to_thread(remove_all, before)

    async def _remove(self, container: str) -> None:
        await self._engine.remove(f"containers/{container}", force="true", v="true")
        async with asyncio.timeout(60):
            # The engine reports success while the removal is in progress, but the name must be free.
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
        return self._status(
            found["Id"], found["Config"]["Labels"], found["State"], published, found["Config"]["Image"]
        )

    def _status(
        self, container: str, labels: Mapping[str, str], state: Mapping[str, Any], published: list[int], image: str
    ) -> InstanceStatus:
        running = bool(state.get("Running"))
        upstream = helper = None
        name, colon, value = labels.get(_SECRET, "").partition(": ")
        secret = (name, value) if colon else None
        if running and published and _START not in labels:
            # Started by an older CodeHub: reached through its published port until its next start.
            upstream = Upstream(container, "127.0.0.1", published[0], secret=secret)
        elif running and _START in labels:
            start = StartDir(self._options.sockets_dir, labels[_START])
            uid = int(labels[_UID]) if labels.get(_UID) else None
            upstream = Upstream(container, socket_path=start.ide_socket, secret=secret, uid=uid)
            helper = by_socket(container, start.workspaced_socket, labels.get(_WORKSPACED, ""), uid)
        return InstanceStatus(
            exists=True,
            running=running,
            identity=container,
            spec_digest=labels.get(_SPEC, ""),
            upstream=upstream,
            exit_reason=_exit_reason(state),
            image=image,
            workspaced=helper,
        )

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        listed = await self._engine.get("containers/json", all="true", filters=self._engine.filters(ROLE_INSTANCE))
        running = {
            item["Labels"][WORKSPACE]: self._status(
                item["Id"],
                item["Labels"],
                {"Running": True},
                [int(port["PublicPort"]) for port in item.get("Ports") or [] if port.get("PublicPort")],
                item["Image"],
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
            rest = b""
            async for data in response.content.iter_any():
                lines, rest = demultiplexed(rest + data)
                if lines:
                    yield lines

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


def demultiplexed(data: bytes) -> tuple[bytes, bytes]:
    """Return the output in `data`, and the part that is not complete yet. Together, because a line can have one byte.

    Each piece has an 8-byte header: the stream, three zeros, the length.
    """
    pieces, at = [], 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        if end > len(data):
            break
        pieces.append(data[at + 8 : end])
        at = end
    return b"".join(pieces), data[at:]


def _sysctls() -> dict[str, str]:
    """The engine disables IPv6 in containers, including ::1, on which many dev servers listen. Enable it again."""
    return {"net.ipv6.conf.lo.disable_ipv6": "0"} if Path("/proc/sys/net/ipv6/conf").is_dir() else {}


def container_name(workspace_id: str) -> str:
    return f"codehub-ws-{workspace_id}"


def _exit_reason(state: Mapping[str, Any]) -> str | None:
    if state.get("Running") or state.get("Status") == "created":
        return None
    code = int(state.get("ExitCode", 0))
    return "OOMKilled" if state.get("OOMKilled") else None if code in _ASKED_TO else f"ExitCode:{code}"
