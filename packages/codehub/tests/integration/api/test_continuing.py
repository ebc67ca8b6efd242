"""`:continue-from-archive` on the database: the new row, the old one's intent, the limit and who may ask."""

from __future__ import annotations

from datetime import timedelta

import httpx
from psycopg.types.json import Jsonb

from codehub.adapters.postgres import timeline
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.pool import Database
from codehub.domain.gc import is_protected
from codehub.domain.history import Generation
from testing.codehub.api import Api, put_in_state
from testing.codehub.workspaces import NOW

W = "/api/v1/workspaces"
OP = "01980000-0000-7000-8000-0000000000bb"
MESSAGE = "the node n1 does not answer since 2026-11-16T12:00:00Z"


def condition(status: str, reason: str, message: str = "") -> dict[str, object]:
    return {"status": status, "reason": reason, "message": message, "last_transition_time": NOW.isoformat()}


async def lost(ada: httpx.AsyncClient, database: Database) -> tuple[str, str]:
    made = (await ada.post(W, json={"name": "work", "memo": "mine"})).json()
    key = f"{made['id']}/{OP}/home.tar.zst"
    await put_in_state(
        database,
        made["id"],
        phase="RUNNING",
        archive_key=key,
        home_ctx=Jsonb({"incarnation": "i1", "restore_marker": key}),
        blocked=Jsonb({"reason": "Unreachable", "message": MESSAGE, "since": NOW.isoformat()}),
        conditions=Jsonb(
            {
                "storage.volume_ready": condition("True", "Ready"),
                "storage.archive_ready": condition("True", "ArchiveUploaded"),
                "infra.container_ready": condition("Unknown", "NotObserved", MESSAGE),
                "policy.healthy": condition("True", "AllConditionsMet"),
            }
        ),
    )
    return str(made["id"]), key


async def test_the_owner_continues_in_a_new_workspace_and_the_old_one_is_kept(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    old_id, key = await lost(ada, database)
    seen = (await ada.get(f"{W}/{old_id}")).json()
    assert "continue_from_archive" in seen["allowed_actions"]
    assert "the node n1 does not answer" in seen["error_message"]
    assert seen["last_archive_at"] is not None
    answer = await ada.post(f"{W}/{old_id}:continue-from-archive")
    assert answer.status_code == 201
    new = answer.json()
    assert (new["name"], new["memo"], new["archive_key"]) == ("work (continued)", "mine", key)
    assert new["desired_state"] == "RUNNING"
    old = (await ada.get(f"{W}/{old_id}")).json()
    assert (old["desired_state"], old["phase"]) == ("STANDBY", "RUNNING"), "stopped when its node is back"
    said = [event["message"] for event in (await ada.get(f"{W}/{old_id}/events")).json()["items"]]
    assert any(new["id"] in message for message in said)
    # The old one's deletion does not take the archive away from the new one.
    await put_in_state(database, old_id, deleted_at=NOW - timedelta(days=9), purged_at=NOW)
    claim = (await PostgresGcStore(database).claims([old_id], 0))[old_id]
    assert is_protected(claim, OP)


async def test_a_new_one_that_loses_its_home_is_recovered_from_the_archive_it_began_with(
    api: Api, database: Database
) -> None:
    ada = await api.user("ada")
    old_id, key = await lost(ada, database)
    async with database.transaction() as tx:
        await timeline.adopt(tx, old_id, [Generation(key, OP, NOW, 22, "0" * 64)])
    new = (await ada.post(f"{W}/{old_id}:continue-from-archive")).json()["id"]
    await put_in_state(database, new, phase="ERROR", error_reason="DataLost", operation="NONE")
    admin = await api.signed_in()
    kept = (await admin.get(f"{W}/{new}/archives")).json()["items"]
    assert [one["archive_key"] for one in kept] == [key]
    answer = await admin.post(f"{W}/{new}:recover", json={"archive_key": key})
    assert answer.status_code == 202, answer.text
    assert answer.json()["archive_key"] == key


async def test_others_cannot_and_what_can_be_reached_is_refused(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    old_id, _ = await lost(ada, database)
    bob = await api.user("bob")
    assert (await bob.post(f"{W}/{old_id}:continue-from-archive")).status_code == 403
    await put_in_state(database, old_id, blocked=None)
    refused = await ada.post(f"{W}/{old_id}:continue-from-archive")
    assert refused.status_code == 409
    assert "can be reached" in refused.json()["error"]["message"]
