"""Runs inside a User-mode Linux: homes on XFS and ext4 with project quotas. Prints one line for each file system."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from codehub.adapters.filesystem import project_quota
from codehub.adapters.filesystem.project_quota import is_enforced, project_of, usage_of
from codehub.adapters.homes import quota
from codehub.adapters.homes.layout import CTX
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey

_MIB = 1 << 20
_USER = 1000


def key(name: str) -> HomeKey:
    return HomeKey(name, f"users/u/workspaces/{name}/home")


@dataclass
class Disk:
    """Homes on one file system."""

    root: Path
    homes: LocalDirHomes

    def files(self, name: str) -> Path:
        return Path(self.homes.mount(key(name)).source)

    def project(self, name: str) -> int:
        found = project_of(self.files(name).parent / CTX)
        assert found == project_of(self.files(name))
        return found

    def write(self, name: str, file: str, mib: int) -> int:
        """Write as the workspace's user, whom quotas hold. Returns the error, 0 if there is none."""
        os.chown(self.files(name), _USER, _USER)
        child = os.fork()
        if child == 0:
            code = 0
            try:
                os.setuid(_USER)
                os.chdir(self.files(name))
                with open(file, "wb", buffering=0) as out:
                    for _ in range(mib):
                        out.write(bytes(_MIB))
                        os.fsync(out.fileno())
            except OSError as error:
                code = error.errno or 255
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def until_free(root: Path, project: int) -> None:
    """XFS counts a removed file until it has cleaned up in the background."""
    async with asyncio.timeout(120):
        while usage_of(root, project).inodes:
            await asyncio.sleep(0.05)


async def walk(disk: Disk) -> None:
    homes, refused = disk.homes, (errno.EDQUOT, errno.ENOSPC)
    first = await homes.provision(key("a"), "inc-a", no_fence)
    await homes.provision(key("b"), "inc-b", no_fence)
    assert disk.project("a") != disk.project("b")
    assert await homes.limit(key("a"), 10 * _MIB)
    assert disk.write("a", "large", 20) in refused
    assert usage_of(disk.root, disk.project("a")).bytes <= 10 * _MIB
    assert disk.write("b", "large", 20) == 0, "the neighbour has no limit"
    assert await homes.limit(key("a"), 30 * _MIB)
    assert disk.write("a", "large", 20) == 0, "a larger size holds from the next start on"

    receipt = await homes.archive(key("a"), first, "op", ignore_progress, no_fence)
    before = disk.project("a")
    await homes.deprovision(key("a"), first, no_fence)
    await until_free(disk.root, before)
    for name in ("a", "copy"):
        await homes.restore(key(name), receipt.archive_key, f"inc-{name}-2", ignore_progress, no_fence)
        assert usage_of(disk.root, disk.project(name)).bytes >= 20 * _MIB
    assert len({disk.project(name) for name in ("a", "b", "copy")}) == 3
    # More is there than fits: it stays, and nothing more can be written until something is deleted.
    assert await homes.limit(key("copy"), 5 * _MIB)
    assert disk.write("copy", "more", 1) in refused
    (disk.files("copy") / "large").unlink()
    assert disk.write("copy", "more", 1) == 0
    assert not await homes.limit(key("copy"), None)
    assert disk.write("copy", "more", 10) == 0


async def adopt(disk: Disk) -> None:
    """A home from before the quotas, and a kill in the middle of its adoption."""
    homes = disk.homes
    with patch.object(quota, "is_enforced", lambda root: False):
        await homes.provision(key("old"), "inc-old", no_fence)
        assert not await homes.limit(key("old"), _MIB)
    outside = disk.root / "outside"
    outside.mkdir()
    for number in range(20):
        folder = disk.files("old") / f"d{number}"
        folder.mkdir()
        (folder / "file").write_bytes(bytes(_MIB // 4))
        (folder / "link").symlink_to(outside)
    steps, real = iter(range(12)), project_quota._set_project

    def dies(fd: int, project: int) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        real(fd, project)

    with patch.object(project_quota, "_set_project", dies):
        try:
            quota.limit_home(disk.root, disk.files("old").parent, 8 * _MIB)
            raise AssertionError("it did not die")
        except KeyboardInterrupt:
            pass
    claimed = project_of(disk.files("old").parent / CTX)
    assert await homes.limit(key("old"), 8 * _MIB)
    assert disk.project("old") == claimed, "the number of the first attempt is used again"
    assert usage_of(disk.root, claimed).bytes >= 5 * _MIB
    assert disk.write("old", "more", 10) in (errno.EDQUOT, errno.ENOSPC)
    assert not project_of(outside), "no link was followed"


def crowd(disk: Disk) -> None:
    """Homes that want the same number at the same time."""
    boxes = [disk.root / f"crowd{number}" for number in range(20)]
    for box in boxes:
        (box / "files").mkdir(parents=True)
        (box / CTX).write_text("the same")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda box: quota.begin_quota(disk.root, box), boxes))
    assert len({project_of(box / CTX) for box in boxes}) == len(boxes)


def main() -> None:
    for name in sys.argv[1:]:
        base = Path(name)
        root = base / "homes"
        root.mkdir(mode=0o711)
        base.chmod(0o755)
        assert is_enforced(root)
        disk = Disk(root, LocalDirHomes(root, Store((base / "archives").as_uri())))
        asyncio.run(walk(disk))
        asyncio.run(adopt(disk))
        crowd(disk)
        print(f"PASSED {base.name}", flush=True)


if __name__ == "__main__":
    main()
