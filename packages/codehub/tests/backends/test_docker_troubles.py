"""A Docker engine in trouble: killed in the middle of a copy, out of room, away; and what `auto` makes of that."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from codehub.adapters.backend_set import BackendOptions, open_backends
from codehub.adapters.docker.engine import Engine
from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.homes.docker_volume import DockerVolumeHomes
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.cli.checks import Health, check_docker
from codehub.cli.effective_settings import effective_settings
from codehub.domain.errors import BackendDown, OutOfSpace
from codehub.domain.profiles import CODE_SERVER, Catalog
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.codehub.contracts.homes import key
from testing.codehub.docker import TINY_IMAGE, DockerEngine
from testing.codehub.homes import local_world
from testing.codehub.trees import differences, fingerprint, make_rich_tree

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]


async def test_an_engine_killed_while_a_volume_is_copied_loses_nothing(
    docker_engine: DockerEngine, engine: Engine, tmp_path: Path
) -> None:
    store = Store((tmp_path / "archives").as_uri())
    fatal = ""

    def at(point: str) -> None:
        nonlocal fatal
        if point == fatal:
            fatal = ""
            docker_engine.kill()

    homes = DockerVolumeHomes(engine, store, at=at)
    ctx = await homes.provision(key(), "inc-1", no_fence)
    files = docker_engine.base / "data/volumes" / homes.mount(key()).source / "_data"
    uid = container_uid_for(key().workspace_id)
    assert uid is not None
    make_rich_tree(files, owner=(uid, uid), big=20_000_000)
    before = fingerprint(files, exact=False)
    fatal = "archive:bytes"
    with pytest.raises(BackendDown):
        await homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    docker_engine.start()
    assert (await homes.status(key())).ctx == ctx
    receipt = await homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await homes.deprovision(key(), ctx, no_fence)
    fatal = "restore:bytes"
    with pytest.raises(BackendDown):
        await homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    docker_engine.start()
    assert (await homes.status(key())).state is not HomeState.COMPLETE
    ctx = await homes.restore(key(), receipt.archive_key, "inc-3", ignore_progress, no_fence)
    assert differences(before, fingerprint(files, exact=False)) == []
    assert [place.op_id async for place in ObjectArchives(store).list_places()] == ["op-1"]
    left = [item["Names"][0] for item in await engine.get("containers/json", all="true")]
    assert [name for name in left if "-copy-" in name] == [], "no copy is left"
    await homes.purge(key(), no_fence)


@pytest.fixture
def small_engine() -> Iterator[DockerEngine]:
    """One whose disk holds 64 MB."""
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="chdocker-", dir="/var/tmp")))
    (engine.base / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", engine.base / "data"], check=True)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


async def test_an_engine_without_room_says_so_and_keeps_no_half_of_a_home(
    small_engine: DockerEngine, tmp_path: Path
) -> None:
    store = Store((tmp_path / "archives").as_uri())
    local = local_world(tmp_path, store)
    ctx = await local.homes.provision(key(), "inc-1", no_fence)
    await local.write(key(), {"large": os.urandom(80 << 20)})
    large = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await local.write(key(), {"large": os.urandom(20 << 20)})
    small = await local.homes.archive(key(), ctx, "op-2", ignore_progress, no_fence)
    engine = Engine(small_engine.host, "test")
    filler = small_engine.base / "data/filler"
    points: list[str] = []

    def at(point: str) -> None:
        points.append(point)
        if point == "restore:staged":
            disk = os.statvfs(filler.parent)
            filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - (8 << 20)))

    try:
        with pytest.raises(OutOfSpace, match="free some space"):
            await DockerVolumeHomes(engine, store, at=at).restore(
                key(), large.archive_key, "inc-2", ignore_progress, no_fence
            )
        assert "restore:staged" not in points, "it is known beforehand"
        with pytest.raises(OutOfSpace, match="no space left"):
            await DockerVolumeHomes(engine, store, at=at).restore(
                key(), small.archive_key, "inc-3", ignore_progress, no_fence
            )
        homes = DockerVolumeHomes(engine, store)
        assert (await homes.status(key())).state is HomeState.ABSENT
        filler.unlink()
        await homes.restore(key(), small.archive_key, "inc-4", ignore_progress, no_fence)
        assert (await homes.status(key())).state is HomeState.COMPLETE
        await homes.purge(key(), no_fence)
    finally:
        await engine.close()


async def test_auto_takes_docker_only_when_an_engine_answers_and_has_the_image(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    async def chosen(host: str, image: str, runtime: str = "auto") -> tuple[str, str]:
        profile = replace(CODE_SERVER, image=image)
        catalog = Catalog({"code-server": profile}, "code-server")
        options = BackendOptions(
            Path(mkdtemp(dir=tmp_path)), tmp_path / "homes", (tmp_path / "archives").as_uri(), "test", runtime,
            "docker-volume",
            docker_host=host,
        )  # fmt: skip
        backends = await open_backends(options, catalog)
        try:
            return backends.instance_backend, backends.storage_backend
        finally:
            await backends.close()

    nobody = f"unix://{tmp_path}/nobody.sock"
    assert await chosen(docker_engine.host, TINY_IMAGE) == ("local-docker", "docker-volume")
    assert await chosen(docker_engine.host, "127.0.0.1:9/none/such:1") == ("process", "local-dir")
    assert await chosen(docker_engine.host, "") == ("process", "local-dir")
    assert await chosen(nobody, TINY_IMAGE) == ("process", "local-dir")
    assert await chosen(nobody, TINY_IMAGE, "docker") == ("local-docker", "docker-volume"), (
        "what was asked for is not guessed"
    )


async def test_an_engine_that_is_away_is_named_in_a_few_words(tmp_path: Path) -> None:
    for name, why in (
        ("nobody.sock", f"there is no socket at unix://{tmp_path}/nobody.sock"),
        ("closed.sock", "Connection refused"),
    ):
        if name == "closed.sock":
            with socket.socket(socket.AF_UNIX) as closed:
                closed.bind(str(tmp_path / name))
        engine = Engine(f"unix://{tmp_path}/{name}", "test")
        try:
            with pytest.raises(BackendDown, match=f"^the Docker engine does not answer: {why}$"):
                await engine.ping()
        finally:
            await engine.close()


async def test_auto_stays_with_docker_while_the_engine_is_away(docker_engine: DockerEngine, tmp_path: Path) -> None:
    async def chosen(host: str) -> str:
        catalog = Catalog({"code-server": replace(CODE_SERVER, image=TINY_IMAGE)}, "code-server")
        archives = (tmp_path / "archives").as_uri()
        options = BackendOptions(
            tmp_path, tmp_path / "homes", archives, "test", "auto", "local-dir", docker_host=host
        )
        backends = await open_backends(options, catalog)
        try:
            return backends.instance_backend
        finally:
            await backends.close()

    assert await chosen(docker_engine.host) == "local-docker"
    assert await chosen(f"unix://{tmp_path}/nobody.sock") == "local-docker", (
        "containers never become processes unasked"
    )


async def test_doctor_says_when_containers_cannot_be_kept_from_this_machine(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"CODEHUB_DATA_DIR": str(tmp_path), "CODEHUB_RUNTIME": "docker", "DOCKER_HOST": docker_engine.host}
    assert [finding.health for finding in await check_docker(effective_settings(settings))] == [Health.GOOD]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # as somebody who may not set the packet filter
    assert [finding.health for finding in await check_docker(effective_settings(settings))] == [
        Health.GOOD,
        Health.WARNING,
    ]
