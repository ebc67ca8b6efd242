"""Finds images or pulls them with progress, or fails at once with ImagePullFailed.

Also reads what CodeHub needs to know of an image to start it.
"""

from __future__ import annotations

import io
import json
import secrets
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from codehub.adapters.docker.engine import Engine
from codehub.domain.errors import ImagePullFailed
from codehub.domain.images import parse_image
from codehub.domain.model import Progress
from codehub.ports.fence import Report

IDE_LABEL = "codehub.ide"
_ROLE_INSPECT = "inspect"
_LONGEST_TABLE = 256 << 10
_NO_USERS = "root:x:0:0:root:/root:/bin/sh\n"


class Ide(StrEnum):
    """How an image's IDE listens, according to its label `codehub.ide`."""

    SOCKET = "socket"  # its command listens on $CODEHUB_SOCKET
    PORT = "port"  # its command listens on $CODEHUB_PORT
    NONE = ""  # no label


@dataclass(frozen=True, slots=True)
class ImageInfo:
    id: str
    command: tuple[str, ...]  # entry point and command
    ide: Ide
    passwd: str = _NO_USERS
    group: str = "root:x:0:\n"
    shell: str = "/bin/sh"


async def find_image(engine: Engine, image: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = await engine.get(f"images/{quote(image, safe='/:@')}/json")
    return found


async def ensure_image(engine: Engine, image: str, report: Report) -> Mapping[str, Any]:
    """Return the engine's description of the image, pulling it first if it is absent."""
    reference = parse_image(image)
    found = await find_image(engine, str(reference))
    if found is not None:
        return found
    name = reference.name
    tag = reference.digest or reference.tag
    layers: dict[str, tuple[int, int]] = {}
    report(Progress("pull"))  # a registry may take its time before the first line
    try:
        async with engine.stream("images/create", "POST", fromImage=name, tag=tag) as response:
            async for line in response.content:
                _note(json.loads(line), layers, image)
                done, total = (sum(pair[n] for pair in layers.values()) for n in (0, 1))
                report(Progress("pull", done, total or None))
    except ImagePullFailed:
        raise
    except Exception as error:
        from aiodocker import DockerError

        if isinstance(error.__cause__, DockerError) and error.__cause__.status < 900:
            raise ImagePullFailed(f"the image {image} could not be pulled: {error.__cause__.message}") from error
        raise
    found = await find_image(engine, str(reference))
    if found is None:
        raise ImagePullFailed(f"the image {image} was pulled but is not there")
    return found


def _note(message: dict[str, object], layers: dict[str, tuple[int, int]], image: str) -> None:
    if "error" in message:
        raise ImagePullFailed(f"the image {image} could not be pulled: {message['error']}")
    detail = message.get("progressDetail")
    if message.get("status") == "Downloading" and isinstance(detail, dict) and "total" in detail:
        layers[str(message.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))


async def inspect_image(engine: Engine, found: Mapping[str, Any]) -> ImageInfo:
    """Read the image's users and shell through a container that never runs."""
    config = found.get("Config") or {}
    command = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
    label = (config.get("Labels") or {}).get(IDE_LABEL, "")
    ide = Ide(label) if label in set(Ide) else Ide.NONE
    body = {
        "Image": found["Id"],
        "Entrypoint": ["never-run"],
        "Labels": engine.labels("", _ROLE_INSPECT),
        "HostConfig": {"NetworkMode": "none"},
    }
    for left in await engine.get("containers/json", all="true", filters=engine.filters(_ROLE_INSPECT)):
        await engine.remove(f"containers/{left['Id']}", force="true", v="true")
    name = f"codehub-inspect-{secrets.token_hex(6)}"
    made = (await engine.send("POST", "containers/create", body, params={"name": name}, timeout_s=120))["Id"]
    try:
        passwd = await _read(engine, made, "/etc/passwd")
        group = await _read(engine, made, "/etc/group")
        shell = "/bin/bash" if await engine.has_file(made, "/bin/bash") else "/bin/sh"
    finally:
        await engine.remove(f"containers/{made}", force="true", v="true")
    return ImageInfo(str(found["Id"]), command, ide, passwd or _NO_USERS, group or "root:x:0:\n", shell)


async def _read(engine: Engine, container: str, path: str) -> str:
    """Return the content of a small file in an image. Empty if it is absent, too long or not a regular file."""
    raw = await engine.read_archive(container, path, _LONGEST_TABLE)
    if raw is None:
        return ""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
            member = tar.next()
            if member is None or not member.isfile() or member.size > _LONGEST_TABLE // 2:
                return ""
            content = tar.extractfile(member)
            return "" if content is None else content.read().decode("utf-8", "replace")
    except tarfile.TarError:
        return ""
