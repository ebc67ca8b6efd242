"""Containers that never run: the engine's door to a volume's contents, without any image to pull, and what holds a volume.

A volume that any container names cannot be removed, not even by somebody who is late. So a home's volume comes into being
together with a container of its own, its hold, whose name says which incarnation it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass

import aiohttp

from codehub.adapters.docker.engine import Engine
from codehub.adapters.tarball.format import END
from codehub.domain.errors import Transient
from codehub.ports.fence import Fence

FOLDER = b"volume"
OWNER = "codehub.uid"  # a volume's label: whose its files are. Older volumes have none
_IMAGE = "codehub-empty:1"
_ROLE_COPY = "copy"


@dataclass(frozen=True, slots=True)
class Door:
    """One such container."""

    engine: Engine
    container: str

    def get(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The volume's content as a tar stream, below `volume/`."""
        return self.engine.stream(f"containers/{self.container}/archive", path=f"/{FOLDER.decode()}")

    async def put(self, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpacked at the root, where an absolute or outward link is as good as any."""
        async with self.engine.stream(f"containers/{self.container}/archive", "PUT", content, path="/") as response:
            await response.read()


async def make_door(
    engine: Engine, name: str, labels: Mapping[str, str], volume: str, volume_labels: Mapping[str, str] | None = None
) -> Door:
    """The volume is made in the same step when it is not there, with these labels."""
    mount = {
        "Type": "volume",
        "Source": volume,
        "Target": f"/{FOLDER.decode()}",
        "VolumeOptions": {"NoCopy": True, "Labels": dict(volume_labels or {})},
    }
    config = {
        "Image": await empty_image(engine),
        "Cmd": ["never-run"],
        "Labels": dict(labels),
        "NetworkDisabled": True,
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
    }
    made = await engine.send("POST", "containers/create", config, params={"name": name})
    return Door(engine, made["Id"])


@contextlib.asynccontextmanager
async def copy_container(engine: Engine, workspace_id: str, volume: str) -> AsyncIterator[Door]:
    """For one copy; one that a crash left behind is removed by the home's next operation."""
    name = f"codehub-ws-{workspace_id}-copy-{secrets.token_hex(4)}"
    door = await make_door(engine, name, engine.labels(workspace_id, _ROLE_COPY), volume)
    try:
        yield door
    finally:
        await asyncio.shield(engine.remove(f"containers/{door.container}", force="true"))


async def remove_copies(engine: Engine, workspace_id: str, fence: Fence) -> None:
    listed = await engine.get("containers/json", all="true", filters=engine.filters(_ROLE_COPY, workspace_id))
    for item in listed:
        fence()
        await engine.remove(f"containers/{item['Id']}", force="true")


async def empty_image(engine: Engine) -> str:
    """Its name; imported when it is not there."""
    if await engine.get(f"images/{_IMAGE}/json") is not None:
        return _IMAGE
    repository, _, tag = _IMAGE.partition(":")
    async with engine.stream("images/create", "POST", END, fromSrc="-", repo=repository, tag=tag) as response:
        await response.read()
    if await engine.get(f"images/{_IMAGE}/json") is None:
        raise Transient("the Docker engine did not take the empty image that volumes are copied through")
    return _IMAGE
