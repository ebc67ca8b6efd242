"""Attacks from inside a process workspace: on another workspace, on this machine, and on CodeHub. Each must fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.process.cgroup import Limits
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.adapters.process.sandbox import tool_dirs
from codehub.adapters.process.supervisor import descendants
from codehub.adapters.workspace_socket import connect_workspace_socket
from codehub.domain.template_options import Size
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.instances import InstancesContract, healthy, until
from testing.codehub.contracts.instances import started as started_by_number
from testing.codehub.contracts.instances import wid as workspace_id
from testing.codehub.elsewhere import elsewhere
from testing.codehub.processes import ProcessWorld, ended, make_world
from testing.codehub.tiny_ide import by_socket

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.needs("bwrap", "slirp4netns", "root")]

# Not the numbers of other tests: the end of an instance is the end of every process of its uid, whoever started it.
FIRST = 4_001


def wid(number: int = 1) -> str:
    return workspace_id(FIRST - 1 + number)


async def started(world: ProcessWorld) -> None:
    await started_by_number(world, FIRST)


CONNECT = """import socket, sys
s = socket.socket(); s.settimeout(5)
try:
    s.connect((sys.argv[1], int(sys.argv[2]))); print("reached", s.recv(100).decode())
except OSError as error:
    print("refused", error)
"""


def limited(base: Path, *, memory: int = 4 << 30, pids: int = 2048, networks: tuple[str, ...] = ()) -> ProcessWorld:
    options = ProcessOptions(
        grace_s=5, hidden=(base,), limits=Limits(memory, 2.0, pids), allowed_networks=networks, log_bytes=200_000
    )
    return ProcessWorld(base, ProcessInstances(base / "run", options))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessWorld]:
    async with ended(limited(tmp_path)) as made:
        yield made


@contextlib.contextmanager
def greeting(host: str) -> Iterator[int]:
    """A service of this machine that greets whoever connects."""
    with socket.create_server((host, 0)) as server:
        code = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.accept()[0].sendall(b'hello')"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(server.fileno())], pass_fds=[server.fileno()]
        ) as child:
            try:
                yield server.getsockname()[1]
            finally:
                child.kill()


async def try_to_reach(world: ProcessWorld, host: str, port: int) -> str:
    return await world.ask(wid(), f"python3 -c '{CONNECT}' {host} {port}")


class TestByPortInItsOwnNetwork(InstancesContract):
    """An IDE that can only listen on a port, behind the bridge: the same contract."""

    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[ProcessWorld]:
        async with ended(make_world(tmp_path, bwrap=True, socket=False)) as made:
            yield made


async def test_an_ides_port_cannot_be_taken_by_another_workspace(tmp_path: Path) -> None:
    """Each has the same port in its own network: whoever listens on it first gets nothing of the other's."""
    async with ended(make_world(tmp_path, bwrap=True, socket=False)) as world:
        ports = []
        for number in (1, 2):
            spec = await world.spec(wid(number))
            await world.instances.start(spec, ignore_progress, no_fence)
            await healthy(world, spec)
            said = await world.ask(wid(number), "cat /proc/net/tcp")
            ports.append({line.split()[1].partition(":")[2] for line in said.splitlines() if " 0A " in line})
        assert ports[0] & ports[1], "they listen on the same port"
        for number in (1, 2):
            assert (await world.ask(wid(number), "echo $CODEHUB_WORKSPACE_ID")).strip() == wid(number)


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


async def test_services_of_this_machine_are_not_reached(world: ProcessWorld) -> None:
    await started(world)
    listed = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    own = [line.split()[3].partition("/")[0] for line in listed.splitlines()]
    with greeting("0.0.0.0") as port:
        for host in {"127.0.0.1", "198.18.0.2", *own}:
            assert "reached" not in await try_to_reach(world, host, port), host
        # It can be reached, but not from there.
        assert (
            subprocess.run(["python3", "-c", CONNECT, "127.0.0.1", str(port)], capture_output=True).stdout
            == b"reached hello\n"
        )


async def test_neither_metadata_nor_private_networks_are_reached(world: ProcessWorld) -> None:
    """By a route, not by who is there: connecting a UDP socket looks up the route and sends nothing."""
    await started(world)
    ask = 'import socket; socket.socket(socket.AF_INET{}, socket.SOCK_DGRAM).connect(("{}", 80)); print("a route")'

    async def route(family: str, host: str) -> str:
        return await world.ask(wid(), f"python3 -c '{ask.format(family, host)}' 2>&1")

    async def out() -> bool:
        return "a route" in await route("", "203.0.113.1")

    await until(out, "the way out is there")
    for host in ("169.254.169.254", "10.0.0.1", "172.17.0.1", "192.168.1.1", "100.64.0.1", "198.18.1.1"):
        assert "Permission denied" in await route("", host), host
    assert "unreachable" in await route("6", "fd00:ec2::254")


async def test_a_listener_at_a_link_local_address_is_not_reached(tmp_path: Path) -> None:
    """As that of cloud metadata, in a network of the test's own."""
    with elsewhere("169.254.77.2", "169.254.77.1") as port:
        async with ended(limited(tmp_path)) as world:
            await started(world)
            assert "refused" in await try_to_reach(world, "169.254.77.2", port)
            # It can be reached, but not from there.
            there = subprocess.run(["python3", "-c", CONNECT, "169.254.77.2", str(port)], capture_output=True)
            assert there.stdout == b"reached hello\n"


async def test_workspaces_do_not_reach_each_others_ports_or_abstract_sockets(world: ProcessWorld) -> None:
    await started(world)
    await world.instances.start(await world.spec(wid(2)), ignore_progress, no_fence)

    async def healthy() -> bool:
        return await world.instances.probe(wid(2), by_socket())

    await until(healthy, "the neighbour answers")
    serve = (
        'import socket; a = socket.create_server(("0.0.0.0", 5555)); b = socket.socket(socket.AF_UNIX);'
        ' b.bind("\\0neighbour"); b.listen(); print("up", flush=True); a.accept()'
    )
    await world.ask(wid(2), f"(python3 -c '{serve}' > ~/up 2>&1 &)")

    async def serving() -> bool:
        return "up" in await world.ask(wid(2), "cat ~/up")

    await until(serving, "the neighbour serves")
    assert "refused" in await try_to_reach(world, "127.0.0.1", 5555)
    assert "refused" in await try_to_reach(world, "198.18.0.100", 5555)
    said = await world.ask(
        wid(), "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0neighbour\")' 2>&1"
    )
    assert "ConnectionRefused" in said


async def test_the_internet_is_reached_and_names_are_asked_for_inside(tmp_path: Path) -> None:
    with elsewhere("203.0.113.2", "203.0.113.1") as port:
        async with ended(limited(tmp_path)) as world:
            await started(world)

            async def out() -> bool:
                return "reached hello" in await try_to_reach(world, "203.0.113.2", port)

            await until(out, "the way out is there")
            # This machine's own address there, public as it is.
            with greeting("203.0.113.1") as service:
                assert "refused" in await try_to_reach(world, "203.0.113.1", service)
            assert "nameserver 198.18.0.3" in await world.ask(wid(), "cat /etc/resolv.conf")
            # Killed, it is started again.
            mine = [pid for pid, name in descendants(world.record(wid()).pid) if name == "slirp4netns"]
            assert len(mine) == 1
            os.kill(mine[0], 9)
            await until(out, "the way out is back")


async def test_a_multicast_does_not_leave_the_workspace(tmp_path: Path) -> None:
    """A socket that names its interface ignores routes: once this reached services such as mDNS, which answered."""
    send = """import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
device = struct.pack("4s4si", bytes(4), bytes(4), socket.if_nametoindex("tap0"))
for option in ((0, 32, device), (0, 33, 4), (1, 25, b"tap0")):
    s.setsockopt(*option)
for group in ("224.0.0.251", "239.1.2.3"):
    print(s.sendto(b"from the workspace", (group, int(sys.argv[1]))))
"""
    with elsewhere("203.0.113.2", "203.0.113.1") as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("0.0.0.0", 0))
        for group in ("224.0.0.251", "239.1.2.3"):
            member = socket.inet_aton(group) + socket.inet_aton("203.0.113.1")
            heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        heard.setblocking(False)
        route = ["ip", "route", "add", "239.1.2.3", "dev", _interface_of("203.0.113.1")]
        subprocess.run(route, check=True)
        route[-3] = "224.0.0.251"
        subprocess.run(route, check=True)
        number = heard.getsockname()[1]
        async with ended(limited(tmp_path)) as world:
            await started(world)

            async def out() -> bool:
                return "reached hello" in await try_to_reach(world, "203.0.113.2", port)

            for again in (False, True):  # also when slirp4netns was started again
                await until(out, "the way out is there")
                assert (await world.ask(wid(), f"python3 -c '{send}' {number}")).split() == ["18", "18"]
                # slirp4netns passes packets on in their order.
                await until(out, "what was sent before has passed")
                with pytest.raises(BlockingIOError):
                    heard.recv(100)
                mine = [pid for pid, name in descendants(world.record(wid()).pid) if name == "slirp4netns"]
                if not again:
                    os.kill(mine[0], 9)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:  # it can be heard, but not from there
            ours.sendto(b"from this machine", ("239.1.2.3", number))
        heard.settimeout(30)
        assert heard.recv(100) == b"from this machine"


def _interface_of(address: str) -> str:
    listed = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[1] for line in listed.splitlines() if line.split()[3].startswith(f"{address}/"))


async def test_what_a_workspace_sends_is_limited_like_its_programs(tmp_path: Path) -> None:
    """slirp4netns works outside of the sandbox, as much as the workspace wants."""
    async with ended(limited(tmp_path)) as world:
        await started(world)

        async def passing() -> bool:
            return any(name == "slirp4netns" for _, name in descendants(world.record(wid()).pid))

        await until(passing, "slirp4netns runs")
        mine = [pid for pid, name in descendants(world.record(wid()).pid) if name == "slirp4netns"]
        groups = Path(f"/proc/{mine[0]}/cgroup").read_text().splitlines()
        name = world.record(wid()).identity
        limited_by = {kind for line in groups if line.endswith(f"/{name}") for kind in line.split(":")[1].split(",")}
        assert limited_by in ({"memory", "cpu", "pids"}, {""}), groups
        assert resource.prlimit(mine[0], resource.RLIMIT_NOFILE)[1] == min(
            4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        )


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


async def test_a_private_network_is_reached_only_when_it_is_allowed(tmp_path: Path) -> None:
    with elsewhere("10.213.7.2", "10.213.7.1") as port:
        async with ended(limited(tmp_path, networks=("10.213.0.0/16",))) as world:
            await started(world)

            async def out() -> bool:
                return "reached hello" in await try_to_reach(world, "10.213.7.2", port)

            await until(out, "the allowed network is reached")
            assert "refused" in await try_to_reach(world, "10.213.7.1", port)
            assert "refused" in await try_to_reach(world, "10.214.0.1", port)


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
    families = (
        "import socket\nfor family in (1, 2, 10, 16, 38, 40):\n try: socket.socket(family, socket.SOCK_DGRAM)\n"
    )
    families += " except OSError as error: print(family, error.errno)"
    assert (await world.ask(wid(), f"python3 -c '{families}'")).splitlines() == ["38 97", "40 97"]
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


def test_the_machines_mounts_stay_where_they_are_shared() -> None:
    """As systemd mounts them. slirp4netns once took them away from the whole machine."""
    script = (
        "mount --make-rshared / && sort /proc/self/mountinfo > $0/before && "
        f"{sys.executable} -c 'from codehub.adapters.process.isolation import find_isolation; "
        "assert find_isolation().slirp' && sort /proc/self/mountinfo > $0/after"
    )
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script, place],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        before, after = (set((Path(place) / name).read_text().splitlines()) for name in ("before", "after"))
        # A mount point that another program removes meanwhile, as container engines do, is unmounted everywhere.
        gone = {line for line in before - after if not os.path.lexists(line.split()[4])}
        assert after == before - gone
