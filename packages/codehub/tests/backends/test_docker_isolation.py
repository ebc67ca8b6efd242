"""Attacks on container workspaces: from another container, from a user of this machine, and from code inside."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.backend_set import BackendOptions, open_backends
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.instances import DockerInstances, DockerOptions
from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.workspace_socket import connect_workspace_socket
from codehub.adapters.workspaced_client import WorkspacedClient, decoded
from codehub.cli.checks import Health, check_docker
from codehub.cli.effective_settings import effective_settings
from codehub.domain.errors import Terminal, UpstreamUnavailable
from codehub.domain.profiles import Catalog
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import Mount, MountKind, Upstream
from testing.codehub.contracts.instances import healthy, started, until, wid
from testing.codehub.docker import DockerEngine
from testing.codehub.docker_world import DockerWorld, close_world, open_world
from testing.codehub.elsewhere import elsewhere

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]
CONNECT = """import socket, sys
s = socket.socket(); s.settimeout(3)
try:
    s.connect((sys.argv[1], int(sys.argv[2]))); print("reached")
except OSError as error:
    print("refused", error)
"""
TRY_SOCKET = """import os, socket, sys
try:
    os.chdir(os.path.dirname(sys.argv[1]))  # a long path is no protection
    socket.socket(socket.AF_UNIX).connect(os.path.basename(sys.argv[1])); print("reached")
except OSError as error:
    print("refused", error)
"""
FIND_SOCKETS = """import os, stat
for top, folders, names in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys")]
    for name in names:
        if stat.S_ISSOCK(os.lstat(f"{top}/{name}").st_mode):
            print(f"{top}/{name}")
"""
KILL = """import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read()
        parent = open(f"/proc/{pid}/stat").read().rpartition(") ")[2].split()[1]
        if "--supervise" in words and "--supervise" in open(f"/proc/{parent}/cmdline").read():
            os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
"""


@pytest.fixture
async def box(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerWorld]:
    tmp_path.chmod(0o711)
    world = await open_world(docker_engine, tmp_path)
    try:
        yield world
    finally:
        await close_world(world)


async def upstream_of(box: DockerWorld, number: int) -> Upstream:
    upstream = await box.instances.resolve_upstream(wid(number))
    assert upstream is not None
    assert upstream.socket_path
    return upstream


async def helper_of(box: DockerWorld, number: int) -> Upstream:
    """The workspace's helper, once it listens: it starts beside the IDE."""
    helper = (await box.instances.status(wid(number))).workspaced
    assert helper is not None

    async def listens() -> bool:
        return await WorkspacedClient().listens(helper)

    await until(listens, "the helper listens")
    return helper


async def request_json(
    client: WorkspacedClient, helper: Upstream, method: str, target: str, body: object = None
) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    async with client.request(helper, method, target, {"Content-Type": "application/json"}, sent) as answer:
        return await decoded(answer)


async def address_of(box: DockerWorld, number: int) -> tuple[str, str]:
    """A container's own address, and that of this machine on its network."""
    shown = await box.engine.get(f"containers/codehub-ws-{wid(number)}/json")
    network = shown["NetworkSettings"]["Networks"][box.instances.network.name]
    return network["IPAddress"], network["Gateway"]


async def reach(box: DockerWorld, host: str, port: int) -> str:
    return await box.ask(wid(1), f"python3 -c '{CONNECT}' {host} {port}")


def as_nobody(*command: str) -> str:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    return done.stdout + done.stderr


async def test_a_workspace_reaches_neither_this_machine_nor_another_workspace(
    box: DockerWorld, docker_engine: DockerEngine
) -> None:
    await started(box, 1)
    await started(box, 2)
    there, gateway = await address_of(box, 2)
    with socket.create_server(("0.0.0.0", 0)) as service:
        assert "refused" in await reach(box, gateway, service.getsockname()[1])
    assert "refused" in await reach(box, there, 8080)
    assert "reached" in await box.ask(wid(2), f"python3 -c '{CONNECT}' {there} 8080"), (
        "the victim's IDE listens there"
    )
    victim = await upstream_of(box, 2)
    for path in (victim.socket_path, (await helper_of(box, 2)).socket_path, str(docker_engine.socket)):
        assert "refused" in await box.ask(wid(1), f"python3 -c '{TRY_SOCKET}' {path}")
        here = subprocess.run(
            ["/usr/bin/python3", "-c", TRY_SOCKET, path], capture_output=True, text=True, check=True
        )
        assert here.stdout == "reached\n", "root on this machine gets there by the same attempt"
    # Nor is the engine's socket anywhere else: the only ones are the workspace's own.
    found = (await box.ask(wid(1), f"python3 -c '{FIND_SOCKETS}'")).split()
    assert {Path(path).parent for path in found} == {Path("/run/codehub")}, found


async def test_a_user_of_this_machine_reaches_no_workspace(box: DockerWorld) -> None:
    await started(box)
    upstream, (there, _) = await upstream_of(box, 1), await address_of(box, 1)
    python = "/usr/bin/python3"
    for path in (upstream.socket_path, (await helper_of(box, 1)).socket_path):
        assert "refused [Errno 13]" in as_nobody(python, "-c", TRY_SOCKET, path)
    assert "refused" in as_nobody(python, "-c", CONNECT, there, "8080")
    connect_workspace_socket(upstream.socket_path, upstream.uid).close()


async def test_a_socket_replaced_by_a_link_leads_nowhere(box: DockerWorld, docker_engine: DockerEngine) -> None:
    await started(box, 1)
    await started(box, 2)
    own, profile = await upstream_of(box, 1), (await box.spec(wid(1))).profile
    helper = await helper_of(box, 1)
    targets = {"ide.sock": (await upstream_of(box, 2)).socket_path, "workspaced.sock": str(docker_engine.socket)}
    links = "; ".join(f'os.unlink("{name}"); os.symlink("{target}", "{name}")' for name, target in targets.items())
    await box.ask(wid(1), f"cd /run/codehub && python3 -c 'import os; {links}'")
    for name in targets:
        path = str(Path(own.socket_path).with_name(name))
        assert Path(path).is_symlink()
        with pytest.raises(OSError):
            connect_workspace_socket(path, own.uid)
    assert not await box.instances.probe(wid(1), profile)
    assert not await WorkspacedClient().listens(helper)
    assert await box.instances.probe(wid(2), profile), "the victim is unharmed"


async def test_a_socket_of_another_user_is_not_taken_for_the_workspaces(box: DockerWorld) -> None:
    await started(box, 1)
    await started(box, 2)
    victim = await upstream_of(box, 2)
    with pytest.raises(ConnectionRefusedError):
        connect_workspace_socket(victim.socket_path, (await upstream_of(box, 1)).uid)


async def test_the_helpers_secret_is_nowhere_in_the_container_and_nothing_opens_without_it(box: DockerWorld) -> None:
    await started(box)
    helper = await helper_of(box, 1)
    assert helper.secret is not None
    secret = helper.secret[1].removeprefix("Bearer ")
    seen = await box.ask(wid(), "cat /proc/*/environ /proc/*/cmdline; grep -rs . /run/codehub ~ /tmp /dev/shm")
    assert {"PATH=", "python3"} <= {word for word in ("PATH=", "python3") if word in seen}, "it looked"
    assert secret not in seen
    assert "launch.json" not in await box.ask(wid(), "ls /run/codehub")
    client = WorkspacedClient()
    hello = await request_json(client, helper, "GET", "/hello")
    assert hello["user"] == "coder"
    stranger = replace(helper, secret=("Authorization", "Bearer wrong"))
    async with client.request(stranger, "GET", "/hello") as answer:
        assert answer.status == 401
    await box.instances.stop(wid(), no_fence)
    await started(box)
    async with client.request(replace(await helper_of(box, 1), secret=helper.secret), "GET", "/hello") as answer:
        assert answer.status == 401, "it is new with every start"


async def test_a_killed_helper_and_a_killed_bridge_come_back(box: DockerWorld) -> None:
    await started(box)
    helper, profile, client = await helper_of(box, 1), (await box.spec(wid())).profile, WorkspacedClient()
    before = (await request_json(client, helper, "GET", "/hello"))["started_at"]
    body = {"command": ["python3", "-c", KILL], "wait": False}
    with contextlib.suppress(UpstreamUnavailable):  # It may be killed before it has answered.
        await request_json(client, helper, "POST", "/exec", body)

    async def back() -> bool:
        try:
            hello = await request_json(client, helper, "GET", "/hello")
        except UpstreamUnavailable:
            return False
        return bool(hello["started_at"] > before) and await box.instances.probe(wid(), profile)

    await until(back, "both answer again")


async def test_each_workspace_has_its_own_user_and_cannot_change_codehubs_tools(box: DockerWorld) -> None:
    await started(box, 1)
    await started(box, 2)
    uids = [(await box.ask(wid(number), "id -u; id -g; id -G; echo x > file")).split() for number in (1, 2)]
    for number, shown in zip((1, 2), uids, strict=True):
        uid = container_uid_for(wid(number))
        assert shown == [str(uid)] * 3
        assert (box.base / wid(number) / "file").stat().st_uid == uid
        assert uid not in (0, os.getuid())
    assert uids[0] != uids[1]
    said = await box.ask(
        wid(1), "echo x > /opt/codehub/bin/python3; echo x > /opt/codehub/new; echo x >> /etc/passwd"
    )
    assert said.count("Read-only") + said.count("Permission denied") == 3, said


async def test_a_home_of_the_user_whom_all_workspaces_had_once_becomes_its_own(box: DockerWorld) -> None:
    spec = await box.spec(wid())
    home = Path(spec.mount.source)
    (home / "sub").mkdir()
    (home / "sub/note").write_text("kept")
    for path in (home, home / "sub", home / "sub/note"):
        os.chown(path, 1000, 1000)
    await started(box)
    assert await box.ask(wid(), "cat sub/note; echo more >> sub/note; cat sub/note") == "keptkeptmore\n"
    assert (home / "sub/note").stat().st_uid == container_uid_for(wid())


async def test_an_older_volume_is_given_to_its_workspaces_user(box: DockerWorld, docker_engine: DockerEngine) -> None:
    name = f"old-{uuid.uuid4()}"
    await box.engine.send("POST", "volumes/create", {"Name": name, "Labels": box.engine.labels(wid(), "home")})
    try:
        files = docker_engine.base / "data/volumes" / name / "_data"
        (files / "sub").mkdir()
        (files / "sub/note").write_text("kept")
        for path in (files, files / "sub", files / "sub/note"):
            os.chown(path, 1000, 1000)
        spec = replace(await box.spec(wid()), mount=Mount(MountKind.VOLUME, name))
        await box.instances.start(spec, ignore_progress, no_fence)
        await healthy(box, spec)
        assert await box.ask(wid(), "cat sub/note; echo x > new") == "kept"
        assert {path.stat().st_uid for path in (files, files / "sub", files / "sub/note", files / "new")} == {
            container_uid_for(wid())
        }
        await box.instances.delete(wid(), no_fence)
    finally:
        await box.engine.remove(f"volumes/{name}")


async def test_private_networks_and_cloud_metadata_are_refused_unless_allowed(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    with elsewhere("198.18.77.2", "198.18.77.1") as port, elsewhere("169.254.77.2", "169.254.77.1") as metadata:
        for allowed, expected in (((), "refused"), (("198.18.77.0/30",), "reached")):
            box = await open_world(docker_engine, tmp_path / f"{len(allowed)}", networks=allowed)
            try:
                await started(box)
                assert expected in await reach(box, "198.18.77.2", port)
                before = await box.instances.network.filter.dropped_metadata()
                assert "refused" in await reach(box, "169.254.77.2", metadata), "link-local is never allowed"
                assert await box.instances.network.filter.dropped_metadata() > before
            finally:
                await close_world(box)


async def test_rules_that_another_program_flushed_are_set_again_at_the_next_start(box: DockerWorld) -> None:
    await started(box, 1)
    rules = box.instances.network.filter
    await rules.remove()
    assert not await rules.is_set()
    _, gateway = await address_of(box, 1)
    with socket.create_server(("0.0.0.0", 0)) as service:
        assert "reached" in await reach(box, gateway, service.getsockname()[1]), "only the rules keep it away"
        await started(box, 2)
        assert await rules.is_set()
        assert "refused" in await reach(box, gateway, service.getsockname()[1])


async def test_rules_of_networks_that_are_gone_are_removed_at_the_first_start(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    crashed, alive, starting = [await open_world(docker_engine, tmp_path / name) for name in ("a", "b", "c")]
    try:
        for world in (crashed, alive):
            await world.instances.network.ensure()
        # As after a crash: the network was removed by hand, and nobody removed its rules.
        await crashed.engine.remove(f"networks/{crashed.instances.network.name}")
        assert await crashed.instances.network.filter.is_set()
        await starting.instances.network.ensure()
        listed = subprocess.run(["iptables", "-w", "10", "-S"], capture_output=True, text=True, check=True).stdout
        gone = crashed.instances.network.filter
        assert gone.bridge not in listed
        assert gone.chain not in listed
        for world in (alive, starting):
            assert await world.instances.network.filter.is_set()
    finally:
        for world in (crashed, alive, starting):
            await close_world(world)


async def test_an_engine_elsewhere_is_refused_with_the_reason(box: DockerWorld, tmp_path: Path) -> None:
    away = Engine("tcp://192.0.2.1:2376", "test")
    instances = DockerInstances(away, DockerOptions(tmp_path / "sockets"))
    with pytest.raises(Terminal, match="not reached through a Unix socket"):
        await instances.start(await box.spec(wid()), ignore_progress, no_fence)
    options = BackendOptions(
        tmp_path, tmp_path / "homes", (tmp_path / "archives").as_uri(), "test", "docker", docker_host=away.host
    )
    with pytest.raises(Terminal, match="DOCKER_HOST"):
        await open_backends(options, Catalog())
    backends = await open_backends(replace(options, runtime="auto"), Catalog())
    assert backends.instance_backend == "process"
    await backends.close()
    settings = {"CODEHUB_DATA_DIR": str(tmp_path), "CODEHUB_RUNTIME": "docker", "DOCKER_HOST": away.host}
    (finding,) = await check_docker(effective_settings(settings))
    assert finding.health is Health.BAD
    assert "Unix socket" in finding.message
