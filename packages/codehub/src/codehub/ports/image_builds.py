"""Images of devcontainer.json: pulled or built by the engine that runs the workspaces, and collected when unused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from codehub.domain.dev_features import File
from codehub.domain.dev_image import DevImage
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import Fence
from codehub.ports.instances import Upstream


@dataclass(frozen=True, slots=True)
class BuildNews:
    """What a build has just printed, and how far it is."""

    text: str = ""
    doing: str = ""
    percent: int | None = None


Tell = Callable[[BuildNews], None]


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """`dockerfile` was checked. In the context it is the file `name`, which nobody can guess where that is untrusted."""

    ref: str
    dockerfile: str
    name: str = "Dockerfile"
    bases: tuple[str, ...] = ()
    args: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)


class ImageBuilder(Protocol):
    @property
    def backend(self) -> str:
        """The instance backend whose workspaces run these images."""
        ...

    def ref(self, digest: str) -> str:
        """Return the name of a built image."""
        ...

    async def exists(self, ref: str) -> bool:
        """Return whether the engine has the image. Nothing is pulled."""
        ...

    async def why_not(self, ref: str, profile: AppProfile) -> str:
        """Return why a workspace of this profile could not start with the image; empty if it can."""
        ...

    async def pull(self, image: str, tell: Tell) -> None:
        """Pull an image unless it is there. Raises ImagePullFailed."""
        ...

    async def build(self, order: BuildOrder, context: AsyncIterator[bytes] | None, tell: Tell) -> None:
        """Build and name an image. `context` is an untrusted tar. Raises CodeHubError with what went wrong."""
        ...

    async def remove(self, ref: str) -> None:
        """Remove the name of a built image. What others are built on stays."""
        ...

    async def collect(self, used: Callable[[], Awaitable[Collection[str]]], fence: Fence) -> int:
        """Remove built images that are not used, and what failed builds left. Returns how many."""
        ...


class BuildFiles(Protocol):
    """A workspace's files, read by its `workspaced` with the workspace's own rights. Paths are relative to the home."""

    async def read(self, upstream: Upstream, path: str, most: int) -> bytes | None:
        """Return a file's content; None if there is no such file. Raises Invalid if it is larger."""
        ...

    async def folder(self, upstream: Upstream, path: str, most: int) -> Mapping[str, File] | None:
        """Return a small folder's files; None if there is no such folder. Raises Invalid if it is larger or has links."""
        ...

    def context(self, upstream: Upstream, path: str, most: int) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return a folder as a tar, without what its .dockerignore names. Raises Invalid if it is larger."""
        ...


class DevImageStore(Protocol):
    async def put_next(self, epoch: int, workspace_id: str, instance: str, image: DevImage) -> bool:
        """Restart this start of the workspace with the image. False if it is another start by now."""
        ...

    async def drop(self, epoch: int, workspace_id: str, digest: str) -> None:
        """Forget an image that a workspace did not start with, so that its next start does not try it again."""
        ...

    async def used(self) -> Collection[str]:
        """Return the images of all workspaces, including deleted ones that can be restored."""
        ...
