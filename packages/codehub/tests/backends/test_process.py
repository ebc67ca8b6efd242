"""Workspaces as processes: the contract, with and without bubblewrap, by socket and by port; and that they outlive us."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codehub.adapters.filesystem.ownership import uid_for
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.process.sandbox import HOME
from codehub.domain.errors import FenceLost, Terminal
from codehub.domain.profiles import AppProfile
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec
from testing.codehub.contracts.instances import InstancesContract, healthy, started, until, wid
from testing.codehub.processes import ProcessWorld, ended, make_world
from testing.codehub.tiny_ide import by_socket

# In turn with the real IDEs' tests: all use the same workspace ids, so the same uids, and the end of an instance is the end
# of every process of its uid.
pytestmark = pytest.mark.xdist_group("ide")

HIDDEN = "what another workspace wrote"


@pytest.fixture
def open_base(tmp_path: Path) -> Path:
    """A base that workspaces' own uids can reach: pytest's is closed to others."""
    if os.geteuid() != 0:
        return tmp_path
    base = Path("/var/tmp") / f"codehub-test-{os.getpid()}-{tmp_path.name}"
    subprocess.run(["rm", "-rf", base], check=True)
    base.mkdir(mode=0o711)
    return base


@pytest.fixture
async def boxed(tmp_path: Path) -> AsyncIterator[ProcessWorld]:
    async with ended(make_world(tmp_path, bwrap=True)) as world:
        yield world


@pytest.mark.needs("bwrap")
class TestSandboxed(InstancesContract):
    @pytest.fixture
    def world(self, boxed: ProcessWorld) -> ProcessWorld:
        return boxed


class TestUnsandboxedByPort(InstancesContract):
    @pytest.fixture
    async def world(self, open_base: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProcessWorld]:
        async with ended(make_world(open_base, bwrap=False, socket=False)) as world:
            # The environment's own Python may lie where the workspace's uid cannot reach it.
            if os.geteuid() == 0:
                monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
            yield world
        subprocess.run(["rm", "-rf", open_base], check=False)


@pytest.mark.needs("bwrap")
async def test_a_workspace_sees_its_home_and_the_system_and_nothing_of_ours(
    boxed: ProcessWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEHUB_DATABASE_URL", "postgresql://secret")
    other = await boxed.spec(wid(2))
    Path(other.mount.source, "diary").write_text(HIDDEN)
    (boxed.base / "password").write_text("ours")
    await started(boxed)
    home = (await boxed.spec(wid())).mount.source
    said = await boxed.ask(
        wid(), f"cat {other.mount.source}/diary; cat {boxed.base}/password; ls {boxed.base}/run; ls /root"
    )
    assert HIDDEN not in said
    assert "ours" not in said
    assert wid() not in said.replace(home, "")
    assert "secret" not in await boxed.ask(wid(), "env; cat /proc/*/environ")
    assert (await boxed.ask(wid(), "echo mine > ~/mine && cat ~/mine && pwd")).split() == ["mine", HOME]
    assert (await boxed.ask(wid(), "touch /usr/x /etc/x 2>/dev/null || echo refused")).strip() == "refused"
    assert (await boxed.ask(wid(), "ls /proc | grep -c '^[0-9]*$'")).strip() in {"3", "4", "5", "6", "7"}


@pytest.mark.needs("bwrap", "root")
async def test_an_instance_is_never_root_and_has_no_way_back(boxed: ProcessWorld) -> None:
    await started(boxed)
    uid = uid_for(wid())
    assert uid is not None
    assert uid >= 1_000_000_000
    assert uid != uid_for(wid(2))
    assert (await boxed.ask(wid(), "id -u; id -g; id -G; id -un")).split() == [str(uid), str(uid), str(uid), "coder"]
    caps = await boxed.ask(wid(), "grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status")
    assert {line.split()[1] for line in caps.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in caps
    assert Path((await boxed.spec(wid())).mount.source).stat().st_uid == uid
    socket_path = Path(boxed.record(wid()).socket_path)
    assert socket_path.parent.stat().st_mode & 0o7777 == 0o2710
    assert socket_path.stat().st_gid == os.getegid()
    assert socket_path.stat().st_mode & 0o077 == 0o060


@pytest.mark.needs("bwrap")
async def test_a_restarted_codehub_takes_over_by_identity_and_a_reused_pid_is_not_ours(boxed: ProcessWorld) -> None:
    before = await started(boxed)
    again = ProcessWorld(boxed.base, make_world(boxed.base, bwrap=True).instances)
    assert await again.instances.list_all() == {wid(): before}
    await again.instances.start(await again.spec(wid()), ignore_progress, no_fence)
    assert await again.instances.status(wid()) == before
    # The same pid with another start time is somebody else: never signalled, never proxied to.
    path = boxed.base / "run" / wid() / "record.json"
    raw = json.loads(path.read_text())
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        path.write_text(json.dumps({**raw, "pid": bystander.pid}))
        assert not (await again.instances.status(wid())).running
        assert await again.instances.resolve_upstream(wid()) is None
        await again.instances.stop(wid(), no_fence)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        path.write_text(json.dumps(raw))


STARTER = """
import asyncio, os, sys
from pathlib import Path
from testing.codehub.contracts.instances import wid
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.processes import make_world
async def main():
    world = make_world(Path({base!r}), bwrap=True)
    spec = await world.spec(wid())
    await world.instances.start(spec, ignore_progress, no_fence)
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.needs("bwrap")
async def test_an_instance_survives_kill_9_of_the_codehub_that_started_it(boxed: ProcessWorld) -> None:
    code = STARTER.format(base=str(boxed.base))
    codehub = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert codehub.stdout is not None
    async with asyncio.timeout(120):
        assert await codehub.stdout.readline() == b"started\n"
    status = await healthy(boxed, await boxed.spec(wid()))
    codehub.kill()
    await codehub.communicate()
    assert await boxed.instances.status(wid()) == status
    assert await boxed.instances.probe(wid(), by_socket())


@pytest.mark.parametrize("bwrap", [pytest.param(True, marks=pytest.mark.needs("bwrap")), False])
async def test_stopping_ends_the_whole_tree_even_what_ignores_it(bwrap: bool, open_base: Path) -> None:
    if os.geteuid() == 0:
        sys_executable, sys.executable = sys.executable, "/usr/bin/python3"
    try:
        async with ended(make_world(open_base, bwrap=bwrap)) as world:
            slow = ProcessInstances(open_base / "run", ProcessOptions(grace_s=0.3, use_bubblewrap=bwrap))
            await started(world)
            await world.ask(
                wid(),
                "setsid sh -c 'trap \"\" TERM; sleep 600 & while :; do sleep 1; done' >/dev/null 2>&1 & sleep 0.2",
            )
            await world.ask(wid(), "(setsid sleep 601 >/dev/null 2>&1 &)")
            assert len(world.tree(wid())) >= 4
            tree = world.tree(wid())
            await slow.stop(wid(), no_fence)
            assert [pid for pid in tree if Path(f"/proc/{pid}").exists() and not _is_zombie(pid)] == []
            assert (await world.instances.status(wid())).exit_reason in (None, "Killed")
    finally:
        if os.geteuid() == 0:
            sys.executable = sys_executable
        subprocess.run(["rm", "-rf", open_base], check=False)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


@pytest.mark.needs("bwrap", "root")
async def test_a_leader_whose_term_ends_while_it_stops_an_instance_ends_nothing_of_the_next_start(
    boxed: ProcessWorld,
) -> None:
    """Every start of a workspace has the same uid, by which the processes that an instance left are found."""
    await started(boxed)
    checks = 0

    def fence() -> None:
        nonlocal checks
        checks += 1
        if checks > 1:
            raise FenceLost("the term is over")

    of_the_next_start = await asyncio.create_subprocess_exec("sleep", "600", user=uid_for(wid()))
    with pytest.raises(FenceLost):
        await boxed.instances.stop(wid(), fence)
    assert of_the_next_start.returncode is None
    await boxed.instances.stop(wid(), no_fence)
    assert await of_the_next_start.wait() == -signal.SIGKILL


@pytest.mark.needs("bwrap")
async def test_a_killed_supervisor_takes_its_instance_along_and_it_can_start_again(boxed: ProcessWorld) -> None:
    await started(boxed)
    tree = boxed.tree(wid())
    os.kill(boxed.record(wid()).pid, signal.SIGKILL)

    async def gone() -> bool:
        return all(not Path(f"/proc/{pid}").exists() or _is_zombie(pid) for pid in tree)

    await until(gone, "the instance ends with its supervisor")
    assert (await boxed.instances.status(wid())).exit_reason == "Killed"
    assert (await started(boxed)).running


@pytest.mark.needs("bwrap")
async def test_output_is_rotated_and_tailed(boxed: ProcessWorld) -> None:
    noisy = AppProfile(
        name="noisy",
        command=("python3", "-u", "-c", "for i in range(60_000): print('line', i)\nimport time; time.sleep(600)"),
    )
    home = (await boxed.spec(wid())).mount
    await boxed.instances.start(InstanceSpec(wid(), "noisy", noisy, home), ignore_progress, no_fence)

    async def written() -> bool:
        tail = [part async for part in boxed.instances.logs(wid(), follow=False, tail=1)]
        return tail == [b"line 59999\n"]

    await until(written, "all of it is there")
    run = boxed.base / "run" / wid()
    assert sum(path.stat().st_size for path in run.glob("output.log*")) < 500_000
    kept = b"".join([part async for part in boxed.instances.logs(wid(), follow=False)])
    assert kept.endswith(b"line 59998\nline 59999\n")


@pytest.mark.needs("bwrap")
async def test_what_is_not_installed_or_ends_at_once_is_said(boxed: ProcessWorld) -> None:
    home = (await boxed.spec(wid())).mount
    missing = AppProfile(name="x", command=("no-such-program",))
    with pytest.raises(Terminal, match="not installed"):
        await boxed.instances.start(InstanceSpec(wid(), "x", missing, home), ignore_progress, no_fence)
    failing = AppProfile(name="x", command=("sh", "-c", "echo it went wrong; exit 3"))
    await boxed.instances.start(InstanceSpec(wid(), "x", failing, home), ignore_progress, no_fence)

    async def over() -> bool:
        return not (await boxed.instances.status(wid())).running

    await until(over, "it ends")
    assert (await boxed.instances.status(wid())).exit_reason == "ExitCode:3"
    assert [p async for p in boxed.instances.logs(wid(), follow=False)] == [b"it went wrong\n"]


@pytest.mark.needs("root")
async def test_a_home_that_the_workspaces_user_cannot_reach_is_an_error_that_says_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    world = make_world(closed, bwrap=False)
    with pytest.raises(Terminal, match="closed to others"):
        await world.instances.start(await world.spec(wid()), ignore_progress, no_fence)
    assert closed.stat().st_mode & 0o7777 == 0o700


async def test_usage_is_of_the_whole_tree(boxed: ProcessWorld) -> None:
    await started(boxed)
    await boxed.instances.usage(wid())
    usage = await boxed.instances.usage(wid())
    assert usage is not None
    assert usage["memory_bytes"] > 1_000_000
    assert usage["cpu_percent"] >= 0
