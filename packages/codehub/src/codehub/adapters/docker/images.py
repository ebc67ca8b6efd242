"""Images: there, or pulled with progress, or ImagePullFailed at once."""

from __future__ import annotations

import json
from urllib.parse import quote

import aiodocker

from codehub.adapters.docker.engine import Engine
from codehub.domain.errors import ImagePullFailed
from codehub.domain.images import parse_image
from codehub.domain.model import Progress
from codehub.ports.fence import Report


async def has_image(engine: Engine, image: str) -> bool:
    return await engine.get(f"images/{quote(image, safe='/:@')}/json") is not None


async def ensure_image(engine: Engine, image: str, report: Report) -> None:
    reference = parse_image(image)
    if await has_image(engine, str(reference)):
        return
    name = reference.name
    tag = reference.digest or reference.tag
    layers: dict[str, tuple[int, int]] = {}
    try:
        async with engine.stream("images/create", "POST", fromImage=name, tag=tag) as response:
            async for line in response.content:
                _note(json.loads(line), layers, image)
                done, total = (sum(pair[n] for pair in layers.values()) for n in (0, 1))
                report(Progress("pull", done, total or None))
    except ImagePullFailed:
        raise
    except Exception as error:
        if isinstance(error.__cause__, aiodocker.DockerError) and error.__cause__.status < 900:
            raise ImagePullFailed(f"the image {image} could not be pulled: {error.__cause__.message}") from error
        raise
    if not await has_image(engine, str(reference)):
        raise ImagePullFailed(f"the image {image} was pulled but is not there")


def _note(message: dict[str, object], layers: dict[str, tuple[int, int]], image: str) -> None:
    if "error" in message:
        raise ImagePullFailed(f"the image {image} could not be pulled: {message['error']}")
    detail = message.get("progressDetail")
    if message.get("status") == "Downloading" and isinstance(detail, dict) and "total" in detail:
        layers[str(message.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
