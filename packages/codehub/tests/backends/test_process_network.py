"""Attacks from inside a process workspace over the network. Each must fail."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codehub.adapters.process.supervisor import descendants
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.instances import InstancesContract, healthy, until
from testing.codehub.elsewhere import elsewhere
from testing.codehub.process_attacks import CONNECT, greeting, limited, started, try_to_reach, wid
from testing.codehub.processes import ProcessWorld, ended, make_world
from testing.codehub.tiny_ide import by_socket

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.needs("bwrap", "slirp4netns", "root")]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessWorld]:
    async with ended(limited(tmp_path)) as made:
        yield made


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


async def test_a_private_network_is_reached_only_when_it_is_allowed(tmp_path: Path) -> None:
    with elsewhere("10.213.7.2", "10.213.7.1") as port:
        async with ended(limited(tmp_path, networks=("10.213.0.0/16",))) as world:
            await started(world)

            async def out() -> bool:
                return "reached hello" in await try_to_reach(world, "10.213.7.2", port)

            await until(out, "the allowed network is reached")
            assert "refused" in await try_to_reach(world, "10.213.7.1", port)
            assert "refused" in await try_to_reach(world, "10.214.0.1", port)


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
