"""Kill -9 of the coordinator at every named point of provisioning, archive and restore, and at random bytes: whoever comes
next gets it right. The list with its outcomes is in docs/testing.md.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch

import pytest

from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.homes.docker_volume import volume_name
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.pool import Database
from testing.codehub.docker import DockerEngine
from testing.codehub.installation import Installation, installation
from testing.codehub.kill_chain import ARCHIVE, PROVISION, RESTORE, KillChain
from testing.codehub.objectstore import S3Server

pytestmark = [pytest.mark.timeout(900)]
OWNER = (1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None


def at_random_bytes(seed: int) -> Callable[[str], int]:
    """One of the first chunks; the tree has at least four."""
    rng = random.Random(seed)
    return lambda point: rng.randrange(1, 5) if point.endswith(":bytes") else 1


def of_local_dir(here: Installation) -> Callable[[], list[str]]:
    def leftovers() -> list[str]:
        # Asked while they are being removed: os.walk leaves out what vanishes meanwhile, where rglob raises.
        found: list[str] = []
        for directory, names, files in os.walk(here.data_dir / "homes"):
            staging = {name for name in (*names, *files) if fnmatch(name, ".*-*") and name != ".codehub-homes"}
            found += [os.path.join(directory, name) for name in sorted(staging)]
            names[:] = [name for name in names if name not in staging]
        return found

    return leftovers


@pytest.mark.xdist_group("ide")
async def test_killed_at_every_point_with_homes_in_directories_and_archives_in_files(
    database: Database, redis_url: str
) -> None:
    async with installation(database, redis_url) as here:
        store = Store((here.data_dir / "archives").as_uri())
        chain = KillChain(here, store, here.files, of_local_dir(here), OWNER, pick=at_random_bytes(1))
        await chain.provision(PROVISION)
        # In twos, the second one a point that is passed again when the first one's work is carried on.
        pairs = [(0, 3), (1, 4), (2, 5), (6, 8), (7, 9), (10, 11)]
        for (one, other), restore in zip(pairs, RESTORE, strict=True):
            await chain.cycle((ARCHIVE[one], ARCHIVE[other]), [restore])
        await chain.end()


@pytest.mark.xdist_group("s3")
async def test_killed_at_every_point_of_a_copy_with_archives_in_s3(
    database: Database, redis_url: str, s3_server: S3Server
) -> None:
    store = s3_server.fresh()
    async with installation(database, redis_url, s3_server.environment(store)) as here:
        chain = KillChain(here, store, here.files, of_local_dir(here), OWNER, pick=at_random_bytes(2))
        await chain.provision([])
        await chain.cycle(["archive:before-data", "archive:after-data"], ["restore:staged", "restore:bytes"])
        await chain.cycle(["archive:bytes", "archive:verified"], ["restore:unpacked"])
        await chain.cycle(["archive:after-meta"], ["restore:swapped"])
        await chain.end()
    store.close()


@pytest.mark.needs("docker", "root")
@pytest.mark.xdist_group("docker")
async def test_killed_at_the_points_of_a_volume_on_a_docker_engine(
    database: Database, redis_url: str, docker_engine: DockerEngine
) -> None:
    environment = {
        "CODEHUB_RUNTIME": "docker",
        "CODEHUB_STORAGE": "docker-volume",
        "DOCKER_HOST": docker_engine.host,
    }
    async with installation(database, redis_url, environment) as here:
        here.row = replace(here.row, instance_backend="local-docker", storage_backend="docker-volume")
        files = docker_engine.base / "data/volumes" / volume_name(here.row.id) / "_data"
        store = Store((here.data_dir / "archives").as_uri())
        uid = container_uid_for(here.row.id)
        assert uid is not None
        chain = KillChain(
            here, store, files, lambda: of_engine(docker_engine), (uid, uid), exact=False, pick=at_random_bytes(3)
        )
        await chain.provision(PROVISION[1:3])
        await chain.cycle(["archive:bytes", "archive:after-meta"], ["restore:staged", "restore:bytes"])
        await chain.cycle(["deprovision:renamed"], ["restore:unpacked"])
        await chain.cycle(["deprovision:half-removed"], ["restore:swapped"])
        await chain.end()


def of_engine(engine: DockerEngine) -> list[str]:
    """Containers that only a copy needs."""
    with engine.client() as client:
        listed = client.get("http://docker/containers/json", params={"all": "true"}).json()
    return [item["Names"][0] for item in listed if "-copy-" in item["Names"][0]]
