"""ports.image_builds.BuildFiles: reads what an image is built from through the `workspaced` of the workspace.

It reads with the workspace's own rights, so no link leads to a file of the host. Its answers are bounded and never trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from codehub.adapters.feature_files import files_of
from codehub.adapters.workspaced_client import Answer, WorkspacedClient
from codehub.domain.dev_features import File
from codehub.domain.errors import ArchiveCorrupted, Invalid, UpstreamUnavailable
from codehub.ports.instances import Upstream

_TAR = {"Accept": "application/x-tar"}
# Of small files, and until a folder begins to arrive: a build waits for it in one of two slots for all users, and its own
# limit applies to the rest.
_ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class WorkspacedFiles:
    client: WorkspacedClient = field(default_factory=WorkspacedClient)

    async def read(self, upstream: Upstream, path: str, most: int) -> bytes | None:
        async with _in_time(path), self.client.request(upstream, "GET", _target(path)) as answer:
            if answer.headers.get("content-type", "").startswith("application/x-tar"):
                return None  # a folder
            return await _whole(answer, path, most)

    async def folder(self, upstream: Upstream, path: str, most: int) -> Mapping[str, File] | None:
        async with _in_time(path), self.client.request(upstream, "GET", _target(path), _TAR) as answer:
            raw = await _whole(answer, path, most)
        if raw is None:
            return None
        try:
            return files_of(raw, path)
        except ArchiveCorrupted as error:
            raise UpstreamUnavailable(f"{path} cannot be read") from error

    @contextlib.asynccontextmanager
    async def context(self, upstream: Upstream, path: str, most: int) -> AsyncIterator[AsyncIterator[bytes]]:
        async with contextlib.AsyncExitStack() as stack:
            target = _target(path) + "?dockerignore=1"
            async with _in_time(path):
                answer = await stack.enter_async_context(self.client.request(upstream, "GET", target, _TAR))
            if answer.status != 200:
                raise Invalid(f"the folder {path} of the build cannot be read")
            yield _bounded(answer, path, most)


@contextlib.asynccontextmanager
async def _in_time(path: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            yield
    except TimeoutError:
        raise UpstreamUnavailable(f"the workspace does not send {path}, which the build needs") from None


def _target(path: str) -> str:
    return "/files/" + quote(path, safe="/", errors="surrogateescape")


async def _whole(answer: Answer, path: str, most: int) -> bytes | None:
    if answer.status in (400, 404):  # 400: a file where a folder is expected
        return None
    if answer.status != 200:
        raise UpstreamUnavailable(f"{path} cannot be read")
    whole = bytearray()
    async for part in answer.body:
        whole += part
        if len(whole) > most:
            raise Invalid(f"{path} is larger than {most >> 10} KiB")
    return bytes(whole)


async def _bounded(answer: Answer, path: str, most: int) -> AsyncIterator[bytes]:
    size = 0
    async for part in answer.body:
        size += len(part)
        if size > most:
            raise Invalid(
                f"the files of the build are larger than {most >> 20} MiB: "
                f"name what it does not need in {path}/.dockerignore"
            )
        yield part
