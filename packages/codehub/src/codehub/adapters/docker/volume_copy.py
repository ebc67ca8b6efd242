"""Containers that never run. They give access to a volume's content without pulling an image, and they hold a volume.

A volume that any container references cannot be removed, not even by a late leader. A home's volume is therefore created
together with a dedicated container, its hold, whose name identifies the incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codehub.adapters.docker.engine import Engine
from codehub.adapters.tarball.format import END
from codehub.domain.errors import Transient
from codehub.ports.fence import Fence

if TYPE_CHECKING:
    import aiohttp

FOLDER = b"volume"
OWNER = "codehub.uid"  # label of a volume: the owner of its files. Older volumes have none
_IMAGE = "codehub-empty:1"
_ROLE_COPY = "copy"


@dataclass(frozen=True, slots=True)
class Door:
    """A container that never runs and gives access to a volume."""

    engine: Engine
    container: str

    def get(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return the volume's content as a tar stream, below `volume/`."""
        return self.engine.stream(f"containers/{self.container}/archive", path=f"/{FOLDER.decode()}")

    async def put(self, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpack a tar at the root, where absolute links and links that point outside are harmless."""
        async with self.engine.stream(f"containers/{self.container}/archive", "PUT", content, path="/") as response:
            await response.read()


async def make_door(
    engine: Engine, name: str, labels: Mapping[str, str], volume: str, volume_labels: Mapping[str, str] | None = None
) -> Door:
    """Create the container, and in the same step the volume with these labels if it does not exist."""
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
    """Create a container for one copy. The home's next operation removes one that a crash left behind."""
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
    """Return the name of the empty image, importing it if needed."""
    if await engine.get(f"images/{_IMAGE}/json") is not None:
        return _IMAGE
    repository, _, tag = _IMAGE.partition(":")
    async with engine.stream("images/create", "POST", END, fromSrc="-", repo=repository, tag=tag) as response:
        await response.read()
    if await engine.get(f"images/{_IMAGE}/json") is None:
        raise Transient("the Docker engine did not take the empty image that volumes are copied through")
    return _IMAGE
