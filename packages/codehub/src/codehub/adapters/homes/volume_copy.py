"""A container that never runs: the engine's door to a volume's contents, without any image to pull."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable
from types import TracebackType

import aiohttp

from codehub.adapters.docker.engine import Engine
from codehub.adapters.tarball.format import END
from codehub.domain.errors import Transient

FOLDER = b"volume"
_IMAGE = "codehub-empty:1"
_ROLE = "copy"


class CopyContainer:
    """Created on entry, removed on exit; one that a crash left behind is removed by the home's next operation."""

    def __init__(self, engine: Engine, workspace_id: str, volume: str) -> None:
        self._engine = engine
        self._workspace_id = workspace_id
        self._volume = volume
        self._id = ""

    async def __aenter__(self) -> CopyContainer:
        await _ensure_empty_image(self._engine)
        config = {
            "Image": _IMAGE,
            "Cmd": ["never-run"],
            "Labels": self._engine.labels(self._workspace_id, _ROLE),
            "NetworkDisabled": True,
            "HostConfig": {
                "NetworkMode": "none",
                "Mounts": [
                    {
                        "Type": "volume",
                        "Source": self._volume,
                        "Target": f"/{FOLDER.decode()}",
                        "VolumeOptions": {"NoCopy": True},
                    }
                ],
            },
        }
        name = f"codehub-ws-{self._workspace_id}-copy-{secrets.token_hex(4)}"
        self._id = (await self._engine.send("POST", "containers/create", config, params={"name": name}))["Id"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await asyncio.shield(self._engine.remove(f"containers/{self._id}", force="true"))

    def get(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The volume's content as a tar stream, below `volume/`."""
        return self._engine.stream(f"containers/{self._id}/archive", path=f"/{FOLDER.decode()}")

    async def put(self, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpacked at the root, where an absolute or outward link is as good as any."""
        async with self._engine.stream(f"containers/{self._id}/archive", "PUT", content, path="/") as response:
            await response.read()


async def remove_copies(engine: Engine, workspace_id: str) -> None:
    listed = await engine.get("containers/json", all="true", filters=engine.filters(_ROLE, workspace_id))
    for item in listed:
        await engine.remove(f"containers/{item['Id']}", force="true")


async def _ensure_empty_image(engine: Engine) -> None:
    if await engine.get(f"images/{_IMAGE}/json") is not None:
        return
    repository, _, tag = _IMAGE.partition(":")
    async with engine.stream("images/create", "POST", END, fromSrc="-", repo=repository, tag=tag) as response:
        await response.read()
    if await engine.get(f"images/{_IMAGE}/json") is None:
        raise Transient("the Docker engine did not take the empty image that volumes are copied through")
