"""Operations on a home in a process of their own that kills itself at a named point, as kill -9 of the coordinator would.

Run as `python -m testing.killpoints JSON`: does one operation and dies at `point` (the `nth` time it is passed).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store, StoreOptions
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey, Homes

ARCHIVE_POINTS = (
    "archive:before-data",
    "archive:bytes",
    "archive:after-data",
    "archive:verified",
    "archive:after-meta",
)
REMOVE_POINTS = ("deprovision:renamed", "deprovision:half-removed", "deprovision:removed")
RESTORE_POINTS = ("restore:staged", "restore:bytes", "restore:unpacked", "restore:swapped")
PROVISION_POINTS = ("provision:staged", "provision:swapped")


async def killed(job: Mapping[str, object]) -> bool:
    """Whether the process died at its point; False when it ended without passing it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "testing.killpoints", json.dumps(job),
        stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    _, said = await process.communicate()
    if process.returncode == -signal.SIGKILL:
        return True
    assert process.returncode == 0, said.decode(errors="replace")[-2000:]
    return False


def _suicide(point: str, nth: int) -> object:
    left = nth

    def at(passed: str) -> None:
        nonlocal left
        if passed == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return at


async def _main(job: dict[str, str]) -> None:
    options = StoreOptions(**json.loads(job["store_options"])) if job.get("store_options") else None
    store = Store(job["store"], options)
    at = _suicide(job["point"], int(job.get("nth", "1")))
    homes: Homes
    close: Callable[[], Awaitable[None]] | None = None
    if job.get("docker"):
        # Only then: these imports are most of a small job's time.
        from codehub.adapters.docker.engine import Engine
        from codehub.adapters.homes.docker_volume import DockerVolumeHomes

        engine = Engine(job["docker"], job["installation"])
        close = engine.close
        homes = DockerVolumeHomes(engine, store, at=at)  # type: ignore[arg-type]
    else:
        homes = LocalDirHomes(Path(job["root"]), store, at=at)  # type: ignore[arg-type]
    home = HomeKey(job["workspace"], job["store_key"])
    match job["do"]:
        case "provision":
            await homes.provision(home, job["incarnation"], no_fence)
        case "archive":
            ctx = HomeCtx(job["incarnation"])
            await homes.archive(home, ctx, job["op"], ignore_progress, no_fence)
            await homes.deprovision(home, ctx, no_fence)
        case "restore":
            await homes.restore(home, job["key"], job["incarnation"], ignore_progress, no_fence)
    if close is not None:
        await close()


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
