"""A real leader process, frozen (SIGSTOP) right before a request to the API server and woken when another one leads.

Its late request names the uid of what was there before, or the name of a start that is there already: it is refused.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from codehub.adapters.postgres.pool import Database
from codehub.domain.model import DesiredState, Phase
from testing.codehub.installation import installation, until
from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_kills import environment, leftovers, prepare, volume_of

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def uids(node: Node, namespace: str, kind: str) -> list[str]:
    """Of what is there to stay."""
    items = json.loads(node.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    return [one["metadata"]["uid"] for one in items if "deletionTimestamp" not in one["metadata"]]


@pytest.mark.parametrize(
    ("point", "desired", "answer"),
    [
        ("create:pods", DesiredState.RUNNING, "AlreadyExists"),
        ("delete:pods", DesiredState.STANDBY, "False"),
        ("delete:persistentvolumeclaims", DesiredState.ARCHIVED, "False"),
    ],
)
async def test_what_a_frozen_leader_asks_for_late_is_refused(
    database: Database,
    redis_url: str,
    node: Node,
    namespace: str,
    point: str,
    desired: DesiredState,
    answer: str,
) -> None:
    async with installation(database, redis_url, environment(namespace)) as here:
        prepare(here)
        frozen = here.coordinator(point, "freeze")
        epoch = await here.leads(frozen)
        await here.create(DesiredState.RUNNING)
        if desired is not DesiredState.RUNNING:
            await here.reaches(Phase.RUNNING)
            await here.ask(desired)
        await frozen.froze()

        successor = here.coordinator()
        assert await here.leads(successor) == epoch + 1
        await here.reaches(Phase(desired.value))
        await here.ask(DesiredState.RUNNING)
        await here.reaches(Phase.RUNNING)
        files = volume_of(node, namespace, here.row.id)()
        (files / "notes").write_text("written since")
        before = [uids(node, namespace, kind) for kind in ("pods", "pvc")]
        assert [len(one) for one in before] == [1, 1]

        frozen.thaw()
        await here.stands()

        async def answered() -> bool:
            return bool(frozen.answers())

        await until(answered, "the late request is answered")
        assert frozen.answers()[0].startswith(answer), frozen.answers()
        assert [uids(node, namespace, kind) for kind in ("pods", "pvc")] == before
        row = await here.now()
        assert (row.phase, row.error_reason) == (Phase.RUNNING, None)
        assert volume_of(node, namespace, here.row.id)() == files
        assert (files / "notes").read_text() == "written since"
        await here.ask(DesiredState.ARCHIVED)
        await here.reaches(Phase.ARCHIVED)

        async def tidied() -> bool:
            left = [*uids(node, namespace, "pods"), *uids(node, namespace, "pvc"), *leftovers(node, namespace)()]
            return left == []

        await until(tidied, "nothing is left over")
        assert replace(await here.now(), updated_at=row.updated_at).error_count == 0
