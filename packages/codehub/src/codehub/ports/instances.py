"""Instances: where a workspace's IDE runs. Idempotent, and ignorant of the database.

Every method raises BackendDown when the backend itself does not answer; absent things are answers, not errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from codehub.domain.profiles import AppProfile, Runs
from codehub.domain.template_options import AS_INSTALLED, NO_OPTIONS, KubernetesOptions, Size
from codehub.ports.fence import Fence, Report


class MountKind(StrEnum):
    """What a homes backend gives to an instance. An instance backend refuses the kinds that it cannot mount."""

    DIR = "dir"  # a directory of the host
    VOLUME = "volume"  # a volume of the container engine, by name
    PVC = "pvc"  # a PersistentVolumeClaim, by name


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a home is for an instance."""

    kind: MountKind
    source: str


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """All that an instance is made from. One made from another spec is re-created by `start`."""

    workspace_id: str
    image: str  # the profile's name on the process runtime, an image reference on the others
    profile: AppProfile
    mount: Mount
    # Of the workspace's template. What the size leaves open is as the backend's own limits say.
    size: Size = AS_INSTALLED
    env: Mapping[str, str] = field(default_factory=dict)
    kubernetes: KubernetesOptions = NO_OPTIONS
    # The IDE begins when `workspaced` was given its owner's environment. Not a part of what it is made from: a start that
    # runs is not made again because a secret was added.
    awaits_environment: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where an instance answers, and which instance it is.

    `identity` changes with every start: after a refused connection it is resolved again and the identity compared,
    so that a reused port never carries one workspace's traffic to another. `secret` is a (header, value) the proxy adds.
    `uid` is the user who must be the one listening at `socket_path`; None means CodeHub's own user.
    """

    identity: str
    host: str = ""
    port: int = 0
    socket_path: str = ""
    secret: tuple[str, str] | None = None
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """What the backend says of one instance, without asking the IDE (that is `probe`)."""

    exists: bool
    running: bool = False
    identity: str = ""
    spec_digest: str = ""  # `spec_digest(spec)` of what it was made from
    upstream: Upstream | None = None
    exit_reason: str | None = None  # "OOMKilled", "ExitCode:137", "ImageMissing", …
    unknown: str = (
        ""  # why nobody can say whether it runs: its node does not answer. Not running, and not gone either
    )
    # Where `workspaced` of this start answers; None for one that was started without it.
    workspaced: Upstream | None = None


ABSENT = InstanceStatus(exists=False)


class Instances(Protocol):
    """One backend: process, local-docker or kubernetes."""

    @property
    def name(self) -> str:
        """As in `workspaces.instance_backend`."""
        ...

    @property
    def runs(self) -> Runs:
        """What it starts: a profile's command, or an image."""
        ...

    async def ping(self) -> None:
        """Raises BackendDown unless the backend answers."""
        ...

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        """There and right: nothing. There and stopped: started. There and different, or `replace`: re-created."""
        ...

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        """Politely, then firmly, the whole tree. Absent or stopped is success."""
        ...

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        """Stop and remove it. Absent is success."""
        ...

    async def status(self, workspace_id: str) -> InstanceStatus: ...

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        """Every instance of this installation by workspace id, in one listing."""
        ...

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        """Whether the IDE answers its health path right now."""
        ...

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        """Where a running instance answers; None when none runs."""
        ...

    def watch(self) -> AsyncIterator[str]:
        """Workspace ids whose instance changed, as hints. Ends or raises when the stream breaks; the caller re-opens it."""
        ...

    def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        """The instance's output, oldest first."""
        ...

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        """{"cpu_percent", "memory_bytes", "memory_limit_bytes"} where the backend knows, else None."""
        ...


def spec_digest(spec: InstanceSpec, limits: str = "") -> str:
    """What an instance is made from, in short: image, mount, profile, and the limits the backend gives it."""
    profile = spec.profile
    parts = (
        spec.image,
        spec.mount.kind,
        spec.mount.source,
        *profile.command,
        str(profile.port),
        str(profile.strip_prefix),
        *(f"{key}={value}" for key, value in sorted(profile.env.items())),
        limits,
        *(() if profile.own_image else ("not the profile's image",)),
        *_of_template(spec),
    )
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _of_template(spec: InstanceSpec) -> tuple[str, ...]:
    """Nothing without a template, so that the digests of instances that run stay what they were."""
    # The disk's size is no part of an instance: it is measured, not mounted.
    size = (spec.size.cpus, spec.size.memory_bytes)
    parts = tuple(f"{key}={value}" for key, value in sorted(spec.env.items()))
    if size != (None, None):
        parts += (repr(size),)
    if spec.kubernetes != NO_OPTIONS:
        parts += (repr(spec.kubernetes),)
    return parts
