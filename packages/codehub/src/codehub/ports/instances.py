"""Instances: where a workspace's IDE runs. Methods are idempotent and know nothing about the database.

Every method raises BackendDown if the backend does not answer. An absent instance is a result, not an error.
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
    """What a homes backend provides to an instance. An instance backend rejects kinds that it cannot mount."""

    DIR = "dir"  # a directory of the host
    VOLUME = "volume"  # a volume of the container engine, by name
    PVC = "pvc"  # a PersistentVolumeClaim, by name


@dataclass(frozen=True, slots=True)
class Mount:
    """The location of a home, for an instance."""

    kind: MountKind
    source: str


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """Everything an instance is created from. `start` re-creates an instance that was created from another spec."""

    workspace_id: str
    image: str  # the profile's name on the process runtime, an image reference on the others
    profile: AppProfile
    mount: Mount
    # From the workspace's template. Values that the size leaves open come from the backend's own limits.
    size: Size = AS_INSTALLED
    env: Mapping[str, str] = field(default_factory=dict)
    kubernetes: KubernetesOptions = NO_OPTIONS
    # The IDE waits until `workspaced` has received its owner's environment. Not part of the digest: adding a secret must
    # not re-create a running instance.
    awaits_environment: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """The address of an instance, and its identity.

    `identity` changes with every start: after a refused connection, the address is resolved again and the identity
    compared, so that a reused port never carries one workspace's traffic to another. `secret` is a (header, value) the
    proxy adds. `uid` is the user who must be listening at `socket_path`; None means CodeHub's own user.
    """

    identity: str
    host: str = ""
    port: int = 0
    socket_path: str = ""
    secret: tuple[str, str] | None = None
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The backend's view of one instance, without a request to the IDE (that is `probe`)."""

    exists: bool
    running: bool = False
    identity: str = ""
    spec_digest: str = ""  # `spec_digest(spec)` of the spec it was created from
    upstream: Upstream | None = None
    exit_reason: str | None = None  # "OOMKilled", "ExitCode:137", "ImageMissing", …
    unknown: str = ""  # why its run state is unknown: its node does not answer. Neither running nor gone
    image: str = ""  # what it was started with, where the backend runs images and knows it
    # The address of this start's `workspaced`; None if it was started without it.
    workspaced: Upstream | None = None


ABSENT = InstanceStatus(exists=False)


class Instances(Protocol):
    """One backend: process, local-docker or kubernetes."""

    @property
    def name(self) -> str:
        """The name in `workspaces.instance_backend`."""
        ...

    @property
    def runs(self) -> Runs:
        """What it starts: a profile's command, or an image."""
        ...

    async def ping(self) -> None:
        """Raise BackendDown unless the backend answers."""
        ...

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        """Start the instance unless it runs. Re-creates it if the spec differs or `replace` is set."""
        ...

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        """Stop the whole process tree, gracefully, then by force. Absent or stopped is success."""
        ...

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        """Stop and remove it. Absent is success."""
        ...

    async def status(self, workspace_id: str) -> InstanceStatus: ...

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        """Return every instance of this installation by workspace id, in one listing."""
        ...

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        """Return whether the IDE currently answers its health path."""
        ...

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        """Return the address of a running instance, or None if none runs."""
        ...

    def watch(self) -> AsyncIterator[str]:
        """Yield ids of workspaces whose instance changed, as hints.

        Ends or raises if the stream breaks; the caller re-opens it.
        """
        ...

    def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        """Yield the instance's output, oldest first."""
        ...

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        """Return {"cpu_percent", "memory_bytes", "memory_limit_bytes"} if the backend knows them, else None."""
        ...


def spec_digest(spec: InstanceSpec, limits: str = "") -> str:
    """Return a digest of what an instance is created from: image, mount, profile, and the backend's limits."""
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
    """Empty without a template, so that the digests of running instances stay the same."""
    # The disk's size is not part of an instance: it is measured, not mounted.
    size = (spec.size.cpus, spec.size.memory_bytes)
    parts = tuple(f"{key}={value}" for key, value in sorted(spec.env.items()))
    if size != (None, None):
        parts += (repr(size),)
    if spec.kubernetes != NO_OPTIONS:
        parts += (repr(spec.kubernetes),)
    for metadata in (spec.kubernetes.labels, spec.kubernetes.annotations):
        parts += (repr(sorted(metadata.items())),) if metadata else ()
    return parts
