"""Disk sizes by project quotas: on XFS and ext4 in a User-mode Linux, and what happens where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codehub.adapters.filesystem.project_quota import is_enforced
from codehub.adapters.objectstore.store import Store
from codehub.ports.fence import no_fence
from testing.codehub.contracts.homes import key
from testing.codehub.homes import local_world

_REPOSITORY = Path(__file__).parents[4]
_PRELOADED = _REPOSITORY / "testing/codehub/user_mode_linux.c"
_INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mkdir /mnt/xfs /mnt/ext4
for module in quota_tree quota_v2; do insmod /usr/lib/uml/modules/*/kernel/fs/quota/$module.ko; done
mount -t xfs -o prjquota /dev/ubdb /mnt/xfs
mount -t ext4 -o prjquota /dev/ubdc /mnt/ext4
cd {repository} && TMPDIR=/mnt {python} -m testing.codehub.quota_guest /mnt/xfs /mnt/ext4
sync
echo o > /proc/sysrq-trigger
sleep 60
"""


@pytest.mark.needs("root", "uml", "mkfs.xfs", "mkfs.ext4", "insmod", "g++")
@pytest.mark.timeout(600)
def test_disk_sizes_are_enforced_on_xfs_and_ext4(tmp_path: Path) -> None:
    init = tmp_path / "init"
    init.write_text(_INIT.format(repository=_REPOSITORY, python=sys.executable))
    init.chmod(0o755)
    disks = {"ubdb": tmp_path / "xfs.img", "ubdc": tmp_path / "ext4.img"}
    for disk in disks.values():
        disk.touch()
        os.truncate(disk, 400 << 20)
    preloaded = tmp_path / "preloaded.so"
    subprocess.run(["g++", "-x", "c", "-O2", "-shared", "-fPIC", "-o", preloaded, _PRELOADED, "-ldl"], check=True)
    env = {
        **os.environ,
        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    with_projects = ["-O", "quota,project", "-E", "quotatype=prjquota"]
    subprocess.run(["mkfs.xfs", "-q", disks["ubdb"]], env=env, check=True)
    subprocess.run(["mkfs.ext4", "-q", *with_projects, disks["ubdc"]], env=env, check=True)
    words = ["linux.uml", "rootfstype=hostfs", "rootflags=/", "ro", "mem=384M", "quiet", f"init={init}"]
    words += [f"{name}={path}" for name, path in disks.items()]
    guest = subprocess.run(
        [*words, "root=/dev/root", "con=null", "con0=null,fd:1", f"umid=codehub-{os.getpid()}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**env, "LD_PRELOAD": str(preloaded)},
        timeout=540,
        check=False,
    )
    said = guest.stdout.decode(errors="replace")
    assert "PASSED xfs" in said, said
    assert "PASSED ext4" in said, said


async def test_without_project_quotas_nothing_is_enforced_and_nothing_fails(tmp_path: Path) -> None:
    world = local_world(tmp_path, Store((tmp_path / "archives").as_uri()))
    await world.homes.provision(key(), "inc-1", no_fence)
    if not is_enforced(tmp_path):
        assert not await world.homes.limit(key(), 1 << 20)
    await world.write(key(), {"a": b"x"})
    assert await world.read(key()) == {"a": b"x"}


def test_a_path_that_is_not_there_has_no_quotas(tmp_path: Path) -> None:
    assert not is_enforced(tmp_path / "absent")
    assert not is_enforced(Path("/proc"))
