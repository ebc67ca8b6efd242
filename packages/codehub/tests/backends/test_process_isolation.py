"""Attacks from inside a process workspace on files, the kernel and the machine's resources. Each must fail."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.process.sandbox import tool_dirs
from codehub.adapters.workspace_socket import connect_workspace_socket
from codehub.domain.template_options import Size
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.instances import healthy, until
from testing.codehub.process_attacks import limited, started, wid
from testing.codehub.processes import ProcessWorld, ended
from testing.codehub.tiny_ide import by_socket

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.needs("bwrap", "slirp4netns", "root")]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessWorld]:
    async with ended(limited(tmp_path)) as made:
        yield made


async def test_a_socket_replaced_by_a_link_leads_nowhere(world: ProcessWorld) -> None:
    await started(world)
    await world.instances.start(await world.spec(wid(2)), ignore_progress, no_fence)
    victim = world.record(wid(2)).socket_path

    async def healthy() -> bool:
        return await world.instances.probe(wid(2), by_socket())

    await until(healthy, "the victim answers")
    attacker = await world.instances.resolve_upstream(wid())
    assert attacker is not None
    own = attacker.socket_path
    await world.ask(wid(), f"mv {own} {own}.old; ln -s {victim} {own}")
    assert not await world.instances.probe(wid(), by_socket())
    with pytest.raises(ConnectionRefusedError):
        connect_workspace_socket(own, attacker.uid)


async def test_secrets_in_etc_and_opt_are_not_there(world: ProcessWorld) -> None:
    """Not even those that everyone on this machine may read."""
    places = [Path(folder, "codehub-isolation-test.env") for folder in ("/etc", "/opt", "/var/lib", "/root", "/srv")]
    try:
        for place in places:
            place.write_text("CODEHUB_DATABASE_URL=secret\n")
            place.chmod(0o644)
        await started(world)
        shown = await world.ask(wid(), f"cat {' '.join(map(str, places))} /etc/*.env /opt/*.env /etc/shadow")
        assert "secret" not in shown
        found = (await world.ask(wid(), "find /opt /var /run /root /srv -mindepth 1 -maxdepth 1 2>&1")).splitlines()
        # Python may be installed there, as pyenv does in /root; nothing is shown beside the way to it.
        shown_tools = {str(way) for tool in tool_dirs() for way in (tool, *tool.parents)}
        assert "/var/tmp" in found
        assert {line for line in found if "No such file" not in line} <= {"/var/tmp", *shown_tools}
    finally:
        for place in places:
            place.unlink(missing_ok=True)
    said = (await world.ask(wid(), "ls /etc /opt 2>&1; cat /etc/passwd; ls /etc/ssl/certs | head -3")).split()
    assert not {"shadow", "environment", "sudoers", "ssh", "codehub", "systemd"} & set(said)
    assert {"resolv.conf", "localtime", "certs"} & set(said) or Path("/etc/localtime").exists() is False
    assert len([word for word in said if ":x:" in word]) == 3
    assert "denied" in await world.ask(wid(), "touch /etc/x /x 2>&1 || echo denied")


async def test_a_workspace_cannot_take_all_pseudo_terminals_of_the_machine(world: ProcessWorld) -> None:
    """The kernel counts them for all users together: nobody else could open a terminal."""
    await started(world)
    take = """import os
taken = []
try:
    while len(taken) < 400: taken.append(os.openpty())
except OSError as error: print(len(taken), error)
"""
    assert (await world.ask(wid(), f"python3 -c '{take}'")).startswith("256 [Errno 28]")
    assert "/dev/pts/" in await world.ask(wid(), "script -qc tty /dev/null; ls -l /dev/pts /dev/ptmx")


async def test_no_user_namespace_and_no_dangerous_system_call(world: ProcessWorld) -> None:
    await started(world)
    assert "not permitted" in await world.ask(wid(), "unshare -U true 2>&1")
    probe = """import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in (165, 272, 56, 435, 321, 298, 425, 250, 304, 308):
    libc.syscall(number, 0x10000000 | 17, 0, 0, 0, 0)
    print(number, ctypes.get_errno())
"""
    said = await world.ask(wid(), f"python3 -c '{probe}'")
    missing = {"435", "425"}  # clone3 and io_uring are said not to exist
    numbers = ("165", "272", "56", "435", "321", "298", "425", "250", "304", "308")
    expected = {number: "38" if number in missing else "1" for number in numbers}
    families = "import socket\nfor family in range(1, 46):\n try: socket.socket(family, socket.SOCK_DGRAM)\n"
    families += " except OSError as error: print(family, error.errno)"
    refused = dict(line.split() for line in (await world.ask(wid(), f"python3 -c '{families}'")).splitlines())
    assert refused.pop("17") == "1", "packets need a capability, which a workspace has in namespaces of its own only"
    others = {str(family): "97" for family in range(1, 46) if family not in (1, 2, 10, 16, 17)}
    assert refused == others
    # A pair is two sockets of the family first, and only then refused.
    pairs = families.replace("socket.socket(", "socket.socketpair(")
    refused = dict(line.split() for line in (await world.ask(wid(), f"python3 -c '{pairs}'")).splitlines())
    assert refused == {**others, "2": "95", "10": "95", "16": "95", "17": "1"}
    if os.uname().machine == "x86_64":
        assert dict(line.split() for line in said.splitlines()) == expected


async def test_resource_limits_hold_and_are_not_raised_from_inside(tmp_path: Path) -> None:
    """They also hold on a machine without control groups."""
    probe = "import resource as r\nfor k in (r.RLIMIT_CORE, r.RLIMIT_NPROC, r.RLIMIT_NOFILE):\n print(r.getrlimit(k)[1])\n"
    probe += "r.setrlimit(r.RLIMIT_NPROC, (501, 501))"
    async with ended(limited(tmp_path, pids=500)) as world:
        await started(world)
        said = await world.ask(wid(), f"python3 -u -c '{probe}' 2>&1")
    files = min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert said.splitlines()[:3] == ["0", "500", str(files)]
    assert "not allowed to raise maximum limit" in said


async def test_a_fork_bomb_stays_in_its_workspace(tmp_path: Path) -> None:
    async with ended(limited(tmp_path, pids=64)) as world:
        await started(world)
        neighbour = ProcessWorld(tmp_path, limited(tmp_path).instances)
        await neighbour.instances.start(await neighbour.spec(wid(2)), ignore_progress, no_fence)

        async def healthy() -> bool:
            return await neighbour.instances.probe(wid(2), by_socket())

        await until(healthy, "the neighbour is up")
        bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
        bombing = asyncio.create_task(world.ask(wid(), f"(setsid python3 -c '{bomb}' > /dev/null 2>&1 &)"))
        group = Path("/sys/fs/cgroup/pids/codehub", world.record(wid()).identity)
        limit = group if group.exists() else Path("/sys/fs/cgroup/codehub", world.record(wid()).identity)

        async def full() -> bool:
            return int((limit / "pids.current").read_text()) >= 64

        await until(full, "the bomb fills its limit")
        assert int((limit / "pids.current").read_text()) <= 64

        async def answers() -> bool:
            return "fine" in await neighbour.ask(wid(2), "echo fine")

        await until(answers, "the neighbour answers")
        await world.instances.stop(wid(), no_fence)
        bombing.cancel()
        await asyncio.gather(bombing, return_exceptions=True)
        assert not (await world.instances.status(wid())).running


async def test_a_memory_hog_is_ended_and_nobody_else(tmp_path: Path) -> None:
    async with ended(limited(tmp_path, memory=96 << 20)) as world:
        await started(world)
        said = await world.ask(
            wid(), "python3 -c 'x = [bytearray(1 << 20) for _ in range(2000)]; print(\"ate it\")'; echo ended $?"
        )
        assert "ate it" not in said
        assert "ended 137" in said
        assert "fine" in await world.ask(wid(), "echo fine")
        # Temporary files are memory too, and are bounded before they take it all.
        said = await world.ask(wid(), "head -c 200M /dev/zero > /tmp/x; echo $?; rm -f /tmp/x")
        assert "No space left" in said


async def test_the_sizes_of_its_template_hold_in_its_control_group(tmp_path: Path) -> None:
    """Also when they are smaller or larger than those of the installation, and at the next start with others."""
    async with ended(limited(tmp_path, memory=512 << 20)) as world:
        spec = replace(await world.spec(wid()), size=Size(cpus=0.5, memory_bytes=96 << 20))
        await world.instances.start(spec, ignore_progress, no_fence)
        await healthy(world, spec)
        assert _limits(world) == (96 << 20, 0.5)
        said = await world.ask(
            wid(), "python3 -c 'x = [bytearray(1 << 20) for _ in range(200)]; print(\"ate it\")'; echo ended $?"
        )
        assert "ate it" not in said
        assert "ended 137" in said
        larger = replace(spec, size=Size(cpus=3.0, memory_bytes=1 << 30))
        await world.instances.start(larger, ignore_progress, no_fence)
        await healthy(world, larger)
        assert _limits(world) == (1 << 30, 3.0)
        usage = await world.instances.usage(wid())
        assert usage is not None
        assert usage["memory_limit_bytes"] == 1 << 30, "what users see is its own limit, not the machine's memory"
        assert "ate it" in await world.ask(
            wid(), "python3 -c 'x = [bytearray(1 << 20) for _ in range(200)]; print(\"ate it\")'; echo ended $?"
        )


def _limits(world: ProcessWorld) -> tuple[int, float]:
    """(memory, cpus) that the kernel holds it to."""
    name = world.record(wid()).identity
    group = Path("/sys/fs/cgroup/codehub", name)
    if group.exists():
        quota, period = (group / "cpu.max").read_text().split()
        return int((group / "memory.max").read_text()), int(quota) / int(period)
    memory, cpu = (Path("/sys/fs/cgroup", kind, "codehub", name) for kind in ("memory", "cpu"))
    share = int((cpu / "cpu.cfs_quota_us").read_text()) / int((cpu / "cpu.cfs_period_us").read_text())
    return int((memory / "memory.limit_in_bytes").read_text()), share


async def test_an_instance_that_is_out_of_memory_says_so(tmp_path: Path) -> None:
    async with ended(limited(tmp_path, memory=96 << 20)) as world:
        spec = await world.spec(wid())
        hungry = replace(spec, profile=replace(spec.profile, env={"EAT": "1"}))
        await world.instances.start(hungry, ignore_progress, no_fence)

        async def over() -> bool:
            return not (await world.instances.status(wid())).running

        await until(over, "it ends")
        assert (await world.instances.status(wid())).exit_reason == "OOMKilled"
