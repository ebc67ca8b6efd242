"""Builds images of devcontainer.json with the engine, bounded in time, size, memory, CPU and processes.

Uses the engine's classic builder: its steps are ordinary containers without privileges and mounts, in the network of
workspaces, and a closed connection ends them. BuildKit would need a session protocol, and its `RUN --mount`, `--security`
and `--network` are what a repository must not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import tarfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import structlog

from codehub.adapters.docker.container import BROUGHT, DockerLimits
from codehub.adapters.docker.engine import INSTALLATION, ROLE, Engine
from codehub.adapters.docker.images import IDE_LABEL, ensure_image, find_image
from codehub.adapters.docker.network import Network
from codehub.domain.dockerfile import with_labels
from codehub.domain.errors import CodeHubError, Invalid, Terminal, Transient
from codehub.domain.images import BUILT
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import Fence
from codehub.ports.image_builds import BuildNews, BuildOrder, Tell

_log = structlog.get_logger()

_ROLE: Final = "dev-image"
_RUNNING = re.compile(r"---> Running in ([0-9a-f]{12,64})")
_MADE = re.compile(r"---> ([0-9a-f]{12,64})\s*$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # around what a step prints to its standard error
_STEP = re.compile(r"Step ([0-9]{1,4})/([1-9][0-9]{0,3}) : (.*)")
# How often the steps are checked: in any case, and at most, when a build's output says that one has begun.
_CHECK_EVERY_S: Final = 1.0
_CHECK_AT_MOST_EVERY_S: Final = 0.1
# What is not used for this long is removed: a build that has just ended is recorded a moment later.
_GRACE_S: Final = 600.0
_CPU_PERIOD: Final = 100_000
# The last steps. One runs at a time, and a step that prints what looks like others must not fill the memory.
_MOST_CONTAINERS: Final = 64


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """`bytes` is the largest image, and how much one build may write."""

    time_s: float = 1800.0
    bytes: int = 20 << 30


@dataclass(slots=True)
class _Build:
    """One build as seen in the engine's output, which a step can imitate: nothing but messages depends on it."""

    tell: Tell
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    containers: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_CONTAINERS))
    percent: int | None = None
    doing: str = ""
    trouble: str = ""
    broken: list[BaseException] = field(default_factory=list)


class DockerImageBuilder:
    backend = "local-docker"

    def __init__(
        self,
        engine: Engine,
        network: Network,
        resources: DockerLimits,
        limits: BuildLimits,
        grace_s: float = _GRACE_S,
    ) -> None:
        self._engine = engine
        self._network = network
        self._resources = resources
        self._limits = limits
        self._grace_s = grace_s
        installation = hashlib.sha256(engine.installation_id.encode()).hexdigest()[:12]
        # The engine asks no registry of the internet for a name on localhost.
        self._name = f"{BUILT}{installation}"
        self._labels = {INSTALLATION: engine.installation_id, ROLE: _ROLE}

    def ref(self, digest: str) -> str:
        return f"{self._name}:{digest}"

    async def exists(self, ref: str) -> bool:
        return await find_image(self._engine, ref) is not None

    async def why_not(self, ref: str, profile: AppProfile) -> str:
        found = await find_image(self._engine, ref)
        if found is None:
            return "the image is not there"
        has_ide = (found.get("Config") or {}).get("Labels") or {}
        if has_ide.get(IDE_LABEL) or (profile.command and profile.command[0] in BROUGHT):
            return ""
        return f"the image has no IDE, and {profile.name} cannot be brought along; {', '.join(BROUGHT)} can"

    async def pull(self, image: str, tell: Tell) -> None:
        def report(progress: Progress) -> None:
            percent = 100 * progress.done // progress.total if progress.total else None
            tell(BuildNews(doing=f"Pull {image}", percent=percent))

        try:
            async with asyncio.timeout(self._limits.time_s):
                await ensure_image(self._engine, image, report)
        except TimeoutError:
            raise Terminal(f"the image {image} took longer than {self._minutes} minutes to pull") from None

    async def build(self, order: BuildOrder, context: AsyncIterator[bytes] | None, tell: Tell) -> None:
        for base in order.bases:
            await self.pull(base, tell)
            found = await find_image(self._engine, base)
            if found is not None and (found.get("Config") or {}).get("OnBuild"):
                raise Invalid(f"the image {base} has ONBUILD instructions, which are not allowed")
        network = await self._network.ensure()
        build = _Build(tell)
        watching = asyncio.create_task(self._watch(build))
        try:
            async with asyncio.timeout(self._limits.time_s):
                async with self._engine.stream(
                    "build", "POST", _sent(self._head(order), context, build), **self._params(order, network)
                ) as response:
                    async for line in response.content:
                        await self._note(build, json.loads(line))
        except TimeoutError:
            raise Terminal(f"the build took longer than {self._minutes} minutes (CODEHUB_BUILD_TIMEOUT)") from None
        except CodeHubError as error:
            reason = next((e for e in build.broken if isinstance(e, CodeHubError)), None)
            raise (Terminal(build.trouble) if build.trouble else reason or error) from error
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not await self.exists(order.ref):
            raise Transient("the image was built but is not there")

    def _head(self, order: BuildOrder) -> bytes:
        """Return the beginning of the context: the Dockerfile, whose name is only known here, and our own files.

        The engine removes from the context what .dockerignore names, once it has read the Dockerfile. Without that, a new
        name for each build would be copied by `COPY .`, and nothing after it would come from the cache.
        """
        # Labels are also on what a failed build leaves, so that it is found.
        dockerfile = with_labels(order.dockerfile, self._labels)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
            _add(out, order.name, dockerfile.encode(), executable=False)
            _add(out, ".dockerignore", f"{order.name}\n.dockerignore\n".encode(), executable=False)
            for path, file in order.files.items():
                _add(out, path, file.content, executable=file.executable)
            length = out.offset
        return buffer.getvalue()[:length]  # without the end: the repository's files follow

    def _params(self, order: BuildOrder, network: str) -> dict[str, str]:
        limits = self._resources
        return {
            "version": "1",
            "dockerfile": order.name,
            "t": order.ref,
            "rm": "true",
            "forcerm": "true",
            "networkmode": network,
            "memory": str(limits.memory_bytes),
            "memswap": str(limits.memory_bytes),
            "cpuperiod": str(_CPU_PERIOD),
            "cpuquota": str(int(limits.cpus * _CPU_PERIOD)),
            "buildargs": json.dumps(dict(order.args)),
            "labels": json.dumps(self._labels),
        }

    async def _note(self, build: _Build, message: dict[str, Any]) -> None:
        if "error" in message:
            raise Terminal(build.trouble or str(message["error"])[:1000])
        text = _COLOUR.sub("", str(message.get("stream", "")))
        if not text:
            return
        if found := _STEP.match(text):
            build.percent = 100 * (int(found[1]) - 1) // int(found[2])
            build.doing = found[3].strip()[:100]
        build.tell(BuildNews(text, build.doing, build.percent))
        if found := _RUNNING.search(text):
            build.containers.append(found[1][:12])
            build.begun.set()
        elif found := _MADE.search(text):
            made = await self._engine.get(f"images/{found[1]}/json")
            if made is not None and int(made.get("Size", 0)) > self._limits.bytes:
                raise Terminal(self._too_large())

    async def _watch(self, build: _Build) -> None:
        """Limit the processes of all steps, and end those that write too much. What they wrote goes with their container.

        Steps are found by the label that every stage begins with.
        """
        labels = [f"{name}={value}" for name, value in self._labels.items()]
        limited: set[str] = set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY_S):
                    await build.begun.wait()
            build.begun.clear()
            # A step may just have ended, and the engine may not answer now.
            with contextlib.suppress(CodeHubError):
                steps = await self._engine.get("containers/json", size="true", filters=json.dumps({"label": labels}))
                for step in steps or ():
                    await self._limit(build, step, limited)
            await asyncio.sleep(_CHECK_AT_MOST_EVERY_S)

    async def _limit(self, build: _Build, step: dict[str, Any], limited: set[str]) -> None:
        if step["Id"] not in limited:
            # The builder has no parameter for it.
            body = {"PidsLimit": self._resources.pids}
            await self._engine.send("POST", f"containers/{step['Id']}/update", body, absent_is_none=True)
            limited.add(step["Id"])
        if int(step.get("SizeRootFs") or 0) > self._limits.bytes:
            if step["Id"][:12] in build.containers:
                build.trouble = self._too_large()
            await self._engine.send("POST", f"containers/{step['Id']}/kill", absent_is_none=True)

    @property
    def _minutes(self) -> str:
        return f"{self._limits.time_s / 60:.2g}"

    def _too_large(self) -> str:
        return f"the image is larger than {self._limits.bytes / (1 << 30):.1f} GiB (CODEHUB_BUILD_SIZE)"

    async def remove(self, ref: str) -> None:
        await self._engine.remove(f"images/{quote(ref, safe='/:@')}")

    async def collect(self, used: Callable[[], Awaitable[Collection[str]]], fence: Fence) -> int:
        labels = [f"{name}={value}" for name, value in self._labels.items()]
        listed = await self._engine.get("images/json", filters=json.dumps({"label": labels}))
        keep, removed = await used(), 0
        for item in listed:
            names = [name for name in item.get("RepoTags") or [] if name != "<none>:<none>"]
            if time.time() - float(item.get("Created", 0)) < self._grace_s:
                continue
            for name in [name for name in names if name not in keep] or ([] if names else [item["Id"]]):
                fence()
                # One that a container uses, or that another image is built on, is refused and stays.
                with contextlib.suppress(Transient):
                    await self.remove(name)
                    removed += 1
        if removed:
            _log.info("images that nobody uses are removed", count=removed)
        return removed


def _add(out: tarfile.TarFile, path: str, content: bytes, *, executable: bool) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(content), 0o755 if executable else 0o644
    out.addfile(info, io.BytesIO(content))


async def _sent(head: bytes, context: AsyncIterator[bytes] | None, build: _Build) -> AsyncIterator[bytes]:
    """The HTTP client would hide why the context ended early: the reason is kept."""
    yield head
    try:
        if context is None:
            yield bytes(1024)
            return
        async for part in context:
            yield part
    except Exception as error:
        build.broken.append(error)
        raise
