"""`/opt/codehub`: the tools that CodeHub provides in every container, in read-only volumes filled once per version.

Contains Python, `workspaced` and OpenSSH's server, plus code-server at `/opt/codehub/ide` for images without an IDE. As
with homes, a volume is complete when a second, empty volume marks it. Installations that share an engine share the volumes,
because their names identify their content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from codehub.adapters.docker.engine import ROLE, Engine
from codehub.adapters.docker.volume_copy import FOLDER, make_door
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.portable import put_programs
from codehub.adapters.workspace_tools import PLACE, stage_tools, tools_version
from codehub.domain.errors import Terminal, Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Report

IDE_PLACE = f"{PLACE}/ide"
_PREFIX = "codehub-tools"
_LABELS = {ROLE: "tools"}
_CHUNK = 1 << 20

# Installs code-server when it is first needed and returns its directory.
IdeTool = Callable[[Report], Path]


class Tools:
    def __init__(self, engine: Engine, ide: IdeTool | None = None) -> None:
        self._engine = engine
        self._ide = ide
        self._lock = asyncio.Lock()

    async def mounts(self, report: Report, *, ide: bool) -> list[dict[str, object]]:
        """Return the container's mounts. Fills the volumes if they are missing."""
        version = await asyncio.to_thread(tools_version)
        name = f"{_PREFIX}-{version}"
        async with self._lock:
            there = await self._there()
            if not _is_whole(there, name):
                report(Progress("prepare containers", 0, 1, "steps"))
                await self._fill(there, name, _stage_tools)
                await self._remove_older(version)
            found = [_mount(name, PLACE)]
            if ide:
                found.append(await self._ide_mount(there, version, report))
        return found

    async def _ide_mount(self, there: set[str], version: str, report: Report) -> dict[str, object]:
        if self._ide is None:
            raise Terminal("this image has no IDE, and there is none here to bring along")
        bin_dir = await asyncio.to_thread(self._ide, report)
        home = bin_dir.parent
        name = f"{_PREFIX}-{version}-{home.name}"
        if not _is_whole(there, name):
            report(Progress("copy code-server to the engine", 0, 1, "steps"))
            await self._fill(there, name, lambda place: _stage_ide(home, place), home)
        return _mount(name, IDE_PLACE)

    async def _there(self) -> set[str]:
        listed = await self._engine.get(
            "volumes", filters=json.dumps({"label": ["=".join(pair) for pair in _LABELS.items()]})
        )
        return {str(volume["Name"]) for volume in listed.get("Volumes") or []}

    async def _fill(
        self, there: set[str], name: str, stage: Callable[[Path], None], also: Path | None = None
    ) -> None:
        if name in there:  # an interrupted fill
            await self._engine.remove(f"volumes/{name}")
        await self._engine.remove(f"containers/{name}-fill", force="true")
        door = await make_door(self._engine, f"{name}-fill", _LABELS, name, _LABELS)
        try:
            async with _staged(stage) as place:
                await door.put(_packed(place, also))
        finally:
            await asyncio.shield(self._engine.remove(f"containers/{door.container}", force="true"))
        await self._engine.send("POST", "volumes/create", {"Name": f"{name}-whole", "Labels": _LABELS})

    async def _remove_older(self, version: str) -> None:
        """Remove volumes of older versions, except those that a container still uses."""
        for name in sorted(await self._there(), key=len, reverse=True):  # markers before the volumes that they mark
            if not name.startswith(f"{_PREFIX}-{version}"):
                with contextlib.suppress(Transient):
                    await self._engine.remove(f"volumes/{name}")


@contextlib.asynccontextmanager
async def _staged(stage: Callable[[Path], None]) -> AsyncIterator[Path]:
    """Stage in a temporary directory. Its removal too happens in a thread: on a busy disk it takes seconds."""
    place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="codehub-tools-"))
    try:
        await asyncio.to_thread(stage, place)
        yield place
    finally:
        await asyncio.shield(asyncio.to_thread(remove_tree, place))


def _is_whole(there: set[str], name: str) -> bool:
    return {name, f"{name}-whole"} <= there


def _mount(name: str, target: str) -> dict[str, object]:
    return {
        "Type": "volume",
        "Source": name,
        "Target": target,
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True},
    }


def _stage_tools(place: Path) -> None:
    stage_tools(place)
    (place / "ide").mkdir()  # mount point for code-server


def _stage_ide(home: Path, place: Path) -> None:
    """Stage code-server with a Node that runs in any image. Everything else is used unchanged."""
    node = home / "node/bin/node"
    put_programs([(node, place / "node/bin/node")], place / "lib", [f"{IDE_PLACE}/lib", f"{PLACE}/lib"])


async def _packed(place: Path, also: Path | None) -> AsyncIterator[bytes]:
    """Pack into a tar in which root owns all files and everyone may read them.

    Files in `place` replace the same ones in `also`.

    Uses `tar`: packing half a gigabyte in Python would block a coordinator's other work, including its leadership.
    """
    command = ["tar", "--create", "--file=-", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]
    command += [f"--transform=flags=rh;s,^\\.,{FOLDER.decode()},", f"--directory={place}", "."]
    if also is not None:
        instead = [f"--exclude=./{path.relative_to(place)}" for path in place.rglob("*") if path.is_file()]
        command += [*instead, f"--directory={also}", "."]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        while chunk := await process.stdout.read(_CHUNK):
            yield chunk
        output = (await process.stderr.read()).decode(errors="replace")
        if await process.wait() != 0:
            raise Transient(f"what containers need could not be packed: {output[-300:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
