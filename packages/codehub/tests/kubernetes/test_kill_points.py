"""Kill -9 of the coordinator at every point of a claim's life: the next leader gets it right, nothing is left over."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.pool import Database
from testing.codehub.installation import installation
from testing.codehub.kill_chain import ARCHIVE, PROVISION, RESTORE, KillChain
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_kills import environment, leftovers, prepare, volume_of
from testing.codehub.objectstore import S3Server

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(1500)]

# (provision, archive, restore): every point once.
CHAINS = [
    (
        ["commit:NONE→PROVISIONING", "provision:staged"],
        ["commit:NONE→ARCHIVING", "archive:bytes", "archive:after-meta"],
        ["commit:NONE→RESTORING", "restore:staged", "restore:bytes"],
    ),
    (["provision:swapped"], ["archive:after-data", "deprovision:half-removed"], ["restore:unpacked"]),
    (
        [],
        ["archive:before-data", "archive:verified", "deprovision:removed", "commit:ARCHIVING→NONE"],
        ["restore:swapped"],
    ),
    (
        ["commit:PROVISIONING→NONE"],
        ["commit:ARCHIVING→ARCHIVING", "deprovision:fenced"],
        ["commit:RESTORING→NONE"],
    ),
]
# A claim is not renamed on its way out.
NOT_OF_A_CLAIM = {"deprovision:renamed"}


def test_the_chains_pass_every_point() -> None:
    passed = {point for chain in CHAINS for points in chain for point in points}
    assert passed == {*PROVISION, *ARCHIVE, *RESTORE} - NOT_OF_A_CLAIM


@pytest.mark.parametrize("number", range(len(CHAINS)))
async def test_killed_at_the_points_of_a_claim(
    database: Database, redis_url: str, node: Node, namespace: str, number: int
) -> None:
    await run_chain(database, redis_url, node, namespace, number)


async def test_killed_at_the_points_of_a_claim_with_archives_in_s3(
    database: Database, redis_url: str, node: Node, namespace: str, s3_server: S3Server
) -> None:
    store = s3_server.fresh()
    try:
        await run_chain(database, redis_url, node, namespace, 0, store, s3_server.environment(store))
    finally:
        store.close()


async def run_chain(
    database: Database,
    redis_url: str,
    node: Node,
    namespace: str,
    number: int,
    store: Store | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    rng = random.Random(number)
    provision, archive, restore = CHAINS[number]
    async with installation(database, redis_url, {**environment(namespace), **(more or {})}) as here:
        prepare(here)
        chain = KillChain(
            here,
            store or Store((here.data_dir / "archives").as_uri()),
            volume_of(node, namespace, here.row.id),
            leftovers(node, namespace),
            (1000, 1000),
            pick=lambda point: rng.randrange(1, 3) if point == "archive:bytes" else 1,  # a restore sends one piece
        )
        await chain.provision(provision)
        await chain.cycle(archive, restore)
        await chain.end()
