"""Builds of devcontainer.json's images by a real engine: what they can do, what they cannot, and what they leave."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from codehub.adapters.docker.builds import BuildLimits, DockerImageBuilder
from codehub.adapters.docker.container import DockerLimits
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.network import Network
from codehub.domain.dev_features import File
from codehub.domain.errors import CodeHubError, ImagePullFailed, Invalid, Terminal, Transient
from codehub.domain.profiles import CODE_SERVER, JUPYTERLAB, AppProfile
from codehub.ports.fence import no_fence
from codehub.ports.image_builds import BuildNews, BuildOrder
from testing.codehub.docker import TINY_IMAGE, DockerEngine

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]
_MIB = 1 << 20


@dataclass
class Builds:
    """One builder, and what its builds printed."""

    engine: Engine
    network: Network
    said: list[str] = field(default_factory=list)
    news: list[BuildNews] = field(default_factory=list)

    def builder(self, limits: BuildLimits | None = None, grace_s: float = 3600.0) -> DockerImageBuilder:
        resources = DockerLimits(memory_bytes=128 * _MIB, cpus=1.0, pids=64)
        return DockerImageBuilder(self.engine, self.network, resources, limits or BuildLimits(), grace_s)

    def tell(self, news: BuildNews) -> None:
        self.said.append(news.text)
        self.news.append(news)

    async def build(
        self,
        *lines: str,
        files: dict[str, str] | None = None,
        limits: BuildLimits | None = None,
        own: dict[str, File] | None = None,
    ) -> str:
        builder = self.builder(limits)
        ref = builder.ref(uuid.uuid4().hex)
        order = BuildOrder(ref, "\n".join(lines) + "\n", f".codehub-{uuid.uuid4().hex}", (TINY_IMAGE,), {}, own or {})
        await builder.build(order, _context(files or {}), self.tell)
        return ref

    @property
    def output(self) -> str:
        return "".join(self.said)

    async def of_this_test(self) -> list[dict[str, object]]:
        labels = [f"codehub.installation={self.engine.installation_id}"]
        found = await self.engine.get("images/json", filters=json.dumps({"label": labels}))
        return list(found)

    async def containers(self) -> list[dict[str, object]]:
        """Return containers of builds. They have no label of their own, but the image's."""
        labels = [f"codehub.installation={self.engine.installation_id}"]
        return list(await self.engine.get("containers/json", all="true", filters=json.dumps({"label": labels})))


async def _context(files: dict[str, str], links: dict[str, str] | None = None) -> AsyncIterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            out.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            out.addfile(info)
    yield buffer.getvalue()


@pytest.fixture
async def builds(engine: Engine) -> AsyncIterator[Builds]:
    network = Network(engine)
    made = Builds(engine, network)
    try:
        yield made
    finally:

        async def nothing() -> list[str]:
            return []

        await made.builder(grace_s=0).collect(nothing, no_fence)
        async with asyncio.timeout(120):
            while True:  # a container that was just ended leaves the network a moment later
                with contextlib.suppress(Transient):
                    await network.remove()
                    break
                await asyncio.sleep(0.2)


async def test_an_image_is_built_with_output_and_progress_and_its_files_are_in_it(
    builds: Builds, docker_engine: DockerEngine
) -> None:
    ref = await builds.build(
        f"FROM {TINY_IMAGE}",
        "COPY . /context",
        "COPY feature-0 /feature",
        'RUN ["/bin/sh", "-c", "cat /context/a.txt /feature/install.sh; echo built by $(id -u)"]',
        files={"a.txt": "of the repository\n", "Dockerfile": "FROM evil\n"},
        own={"feature-0/install.sh": File(b"of the feature\n", executable=True)},
    )
    assert "of the repository\nof the feature\nbuilt by 0\n" in builds.output
    percents = [news.percent for news in builds.news if news.percent is not None]
    assert percents == sorted(percents)
    assert percents[-1] > 50
    assert await builds.builder().exists(ref)
    assert ref.startswith("localhost/codehub-dev-")


async def test_only_the_repositorys_files_are_copied_and_the_same_ones_come_from_the_cache(builds: Builds) -> None:
    lines = (f"FROM {TINY_IMAGE}", "COPY . /context", "RUN ls -a /context")
    files = {"Dockerfile": "FROM evil\n", "app.py": "1\n"}
    await builds.build(*lines, files=files)
    assert builds.output.count("Using cache") == 0
    assert "\n.\n..\nDockerfile\napp.py\n" in builds.output
    await builds.build(*lines, files=files)
    assert builds.output.count("Using cache") >= 3
    await builds.build(*lines, files={**files, "app.py": "2\n"})
    assert builds.output.count("\n.\n..\nDockerfile\napp.py\n") == 2, "what changed is built again"


async def test_a_step_of_a_build_sees_nothing_of_the_host(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile Dockerfile: privileges, the engine's socket, the host's services, its memory and its processes."""
    with socket.socket() as service:
        service.bind(("0.0.0.0", 0))  # as the machine's own services do
        service.listen()
        port = service.getsockname()[1]
        attack = (
            "import os, socket, subprocess, time\n"
            "caps = int([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1], 16)\n"
            "print('sys_admin', caps >> 21 & 1, 'sys_ptrace', caps >> 19 & 1, 'net_admin', caps >> 12 & 1)\n"
            "print('docker', os.path.exists('/var/run/docker.sock'))\n"
            "print('disks', [d for d in os.listdir('/dev') if d[:2] == 'sd'])\n"
            "gateway = [l.split()[2] for l in open('/proc/net/route') if l.split()[1] == '00000000'][0]\n"
            "gateway = '.'.join(str(int(gateway[i:i+2], 16)) for i in (6, 4, 2, 0))\n"
            "def reach(host):\n"
            "    try:\n"
            f"        socket.create_connection((host, {port}), 3).close(); return 'reached'\n"
            "    except OSError: return 'refused'\n"
            "print('host', reach(gateway), reach('127.0.0.1'))\n"
            "limits = ('/sys/fs/cgroup/pids/pids.max', '/sys/fs/cgroup/pids.max')\n"
            "for _ in range(600):\n"
            "    if any(os.path.exists(p) and open(p).read().strip() != 'max' for p in limits): break\n"
            "    time.sleep(0.1)\n"
            "children = []\n"
            "try:\n"
            "    for _ in range(200): children.append(subprocess.Popen(['/bin/sleep', '60']))\n"
            "except OSError: pass\n"
            "print('processes', len(children) < 100)\n"
            "for child in children: child.kill()\n"
            "try:\n"
            "    with open('/proc/sys/kernel/hostname', 'w') as f: f.write('x')\n"
            "    print('sysctl written')\n"
            "except OSError: print('sysctl refused')\n"
        )
        lines = (f"FROM {TINY_IMAGE}", "COPY attack.py /attack.py", 'RUN ["python3", "/attack.py"]')
        await builds.build(*lines, files={"attack.py": attack})
        # Without the packet filter, the same step reaches the service. Changed, so that it does not come from the cache.
        without = Builds(builds.engine, builds.network)
        found = await builds.network.ensure()

        async def as_it_is() -> object:
            return found

        monkeypatch.setattr(builds.network, "ensure", as_it_is)
        await builds.network.filter.remove()
        await without.build(*lines, files={"attack.py": attack + "# again\n"})
        assert "host reached refused\n" in without.output, without.output
    assert "sys_admin 0 sys_ptrace 0 net_admin 0\n" in builds.output, builds.output
    assert "docker False\ndisks []\n" in builds.output
    assert "host refused refused\n" in builds.output
    assert "processes True\n" in builds.output
    assert "sysctl refused\n" in builds.output


async def test_memory_of_a_step_is_limited(builds: Builds) -> None:
    with pytest.raises(Terminal, match="returned a non-zero code"):
        await builds.build(f"FROM {TINY_IMAGE}", 'RUN ["python3", "-c", "x = bytearray(1 << 30)"]')


async def test_a_link_in_the_repository_does_not_lead_out_of_the_context(builds: Builds) -> None:
    builder = builds.builder()
    text = f'FROM {TINY_IMAGE}\nCOPY out /copied\nRUN ["/bin/sh", "-c", "cat /copied/hostname"]\n'
    order = BuildOrder(builder.ref(uuid.uuid4().hex), text, ".codehub-t", (TINY_IMAGE,))
    with pytest.raises(CodeHubError):
        await builder.build(order, _context({"a": "b"}, {"out": "/etc"}), builds.tell)
    assert socket.gethostname() not in builds.output


@pytest.mark.parametrize(
    "lines",
    [
        ('RUN ["python3", "-c", "open(\\"/x\\", \\"wb\\").write(bytes(60 << 20)); import time; time.sleep(600)"]',),
        # What a step prints is not taken for what the engine says.
        (
            'RUN ["python3", "-c", "print(\\" ---> 0123456789ab\\", flush=True); '
            'open(\\"/x\\", \\"wb\\").write(bytes(60 << 20)); import time; time.sleep(600)"]',
        ),
        ("COPY big /one", "COPY big /two", "COPY big /three"),
    ],
)
async def test_a_build_that_grows_too_large_ends(builds: Builds, lines: tuple[str, ...]) -> None:
    base = await builds.engine.get(f"images/{TINY_IMAGE}/json")
    limits = BuildLimits(bytes=int(base["Size"]) + 20 * _MIB)
    with pytest.raises(Terminal, match="CODEHUB_BUILD_SIZE"):
        await builds.build(f"FROM {TINY_IMAGE}", *lines, files={"big": "x" * (15 * _MIB)}, limits=limits)
    await _until(builds.containers, lambda found: not found)


async def test_a_build_that_takes_too_long_ends_and_leaves_no_container(builds: Builds) -> None:
    with pytest.raises(Terminal, match="took longer"):
        await builds.build(f"FROM {TINY_IMAGE}", "RUN sleep 600", limits=BuildLimits(time_s=5))
    await _until(builds.containers, lambda found: not found)


async def test_a_build_whose_caller_is_killed_leaves_no_container(builds: Builds) -> None:
    running = asyncio.create_task(builds.build(f"FROM {TINY_IMAGE}", "RUN echo here && sleep 600"))
    async with asyncio.timeout(120):
        while "here" not in builds.output:
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await _until(builds.containers, lambda found: not found)


async def test_a_step_that_fails_is_explained_and_what_it_leaves_is_collected(builds: Builds) -> None:
    with pytest.raises(Terminal, match="returned a non-zero code: 3"):
        await builds.build(f"FROM {TINY_IMAGE}", "RUN echo reason", "RUN exit 3")
    assert "reason\n" in builds.output
    kept = await builds.build(f"FROM {TINY_IMAGE}", "RUN echo kept")
    other = await builds.build(f"FROM {TINY_IMAGE}", "RUN echo other")

    async def used() -> list[str]:
        return [kept]

    # At first they are too young: a build that has just ended is not recorded yet.
    assert await builds.builder().collect(used, no_fence) == 0
    builder = builds.builder(grace_s=0)
    await builder.collect(used, no_fence)
    assert await builder.exists(kept)
    assert not await builder.exists(other)
    assert [image["RepoTags"] for image in await builds.of_this_test()] == [[kept]]


async def test_a_base_that_is_not_there_or_brings_instructions_of_its_own_is_refused(
    builds: Builds, docker_engine: DockerEngine
) -> None:
    builder = builds.builder()
    order = BuildOrder(builder.ref("x"), "FROM localhost:1/none:1\n", bases=("localhost:1/none:1",))
    with pytest.raises(ImagePullFailed, match="could not be pulled"):
        await builder.build(order, None, builds.tell)
    trap = f"codehub-test/trap-{uuid.uuid4().hex[:8]}:1"
    with docker_engine.client() as client:
        made = client.post(
            "http://docker/build",
            params={"t": trap, "version": "1"},
            content=b"".join(
                [part async for part in _context({"Dockerfile": f"FROM {TINY_IMAGE}\nONBUILD ADD http://a /x\n"})]
            ),
            headers={"Content-Type": "application/x-tar"},
        )
        assert made.status_code == 200, made.text
    with pytest.raises(Invalid, match="ONBUILD"):
        await builder.build(BuildOrder(builder.ref("y"), f"FROM {trap}\n", bases=(trap,)), None, builds.tell)


async def test_files_that_are_too_large_end_the_build_with_their_own_reason(builds: Builds) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"".join([part async for part in _context({"a": "b"})])[:1024]
        raise Invalid("the files of the build are larger than 1 MiB")

    builder = builds.builder()
    order = BuildOrder(builder.ref("z"), f"FROM {TINY_IMAGE}\nCOPY . /x\n", bases=(TINY_IMAGE,))
    with pytest.raises(Invalid, match="larger than 1 MiB"):
        await builder.build(order, endless(), builds.tell)


async def test_an_image_without_an_ide_is_for_profiles_that_can_be_brought_along(builds: Builds) -> None:
    builder = builds.builder()
    tiny = AppProfile("tiny", image=TINY_IMAGE)
    assert await builder.why_not(TINY_IMAGE, tiny) == ""  # its label says that it has an IDE
    bare = await builds.build(f"FROM {TINY_IMAGE}", 'LABEL codehub.ide=""')
    assert await builder.why_not(bare, CODE_SERVER) == ""
    assert "jupyterlab cannot be brought along" in await builder.why_not(bare, JUPYTERLAB)
    assert "not there" in await builder.why_not(builder.ref("none"), CODE_SERVER)


async def _until(look: Callable[[], object], done: Callable[[object], bool]) -> None:
    async with asyncio.timeout(120):
        while not done(await look()):  # type: ignore[misc]
            await asyncio.sleep(0.1)
