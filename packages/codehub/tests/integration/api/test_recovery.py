"""Recovery from ERROR: what the owner's verbs do on the way, and what only an administrator can (docs/errors.md)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, new_name, put_in_state

W = "/api/v1/workspaces"
HOME = Jsonb({"incarnation": "i1", "restore_marker": None})


async def in_error(client: httpx.AsyncClient, database: Database, reason: str, **columns: Any) -> str:
    ws = (await client.post(W, json={"name": new_name("broken"), "start": False})).json()
    await put_in_state(
        database,
        ws["id"],
        phase="ERROR",
        error_reason=reason,
        error_count=3,
        retry_at="2026-11-16",
        last_access_at="2026-11-01",
        **columns,
    )
    return str(ws["id"])


async def row_of(database: Database, workspace_id: str) -> dict[str, Any]:
    async with database.transaction() as tx:
        row = await (await tx.execute("SELECT * FROM workspaces WHERE id = %s", [workspace_id])).fetchone()
    assert row is not None
    return dict(row)


async def kept_archive(database: Database, workspace_id: str, op_id: str) -> str:
    key = f"{workspace_id}/{op_id}/home.tar.zst"
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
            " VALUES (%s, %s, %s, now(), 50, %s)",
            [workspace_id, key, op_id, "0" * 64],
        )
    return key


@pytest.mark.parametrize(
    ("verb", "home", "desired"),
    [
        ("start", HOME, "RUNNING"),
        ("stop", HOME, "STANDBY"),
        ("stop", None, "ARCHIVED"),
        ("archive", HOME, "ARCHIVED"),
    ],
)
async def test_the_owners_verbs_recover_on_the_way(
    api: Api, database: Database, verb: str, home: Jsonb | None, desired: str
) -> None:
    ada = await api.user("ada")
    ws = await in_error(ada, database, "ContainerWithoutVolume", home_ctx=home, desired_state="RUNNING")
    assert (await ada.post(f"{W}/{ws}:{verb}")).status_code == 202
    row = await row_of(database, ws)
    assert (row["desired_state"], row["error_reason"], row["error_count"], row["retry_at"]) == (
        desired,
        None,
        0,
        None,
    )
    assert row["phase"] == "ERROR", "the phase is the controller's to judge again"
    reported = (await ada.get(f"{W}/{ws}/events")).json()["items"][0]
    assert (reported["kind"], reported["actor"]) == (verb, "ada")
    assert "ContainerWithoutVolume" in reported["message"]


@pytest.mark.parametrize("reason", ["DataLost", "ArchiveCorrupted"])
async def test_after_lost_data_the_owner_cannot_start_or_archive_but_can_stop_and_delete(
    api: Api, database: Database, reason: str
) -> None:
    ada = await api.user("ada")
    ws = await in_error(ada, database, reason, home_ctx=HOME, desired_state="RUNNING")
    for verb in ("start", "archive"):
        refused = await ada.post(f"{W}/{ws}:{verb}")
        assert refused.status_code == 409
        assert "administrator" in refused.json()["error"]["message"]
    assert (await ada.post(f"{W}/{ws}:recover", json={"archive_key": None})).status_code == 403
    assert (await ada.post(f"{W}/{ws}:stop")).status_code == 202
    row = await row_of(database, ws)
    assert (row["desired_state"], row["error_reason"]) == ("STANDBY", reason)
    assert (await ada.delete(f"{W}/{ws}")).status_code == 204
    assert (await row_of(database, ws))["desired_state"] == "DELETED"


async def test_an_administrator_recovers_lost_data_from_a_kept_archive_or_an_empty_home(
    api: Api, database: Database
) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    ws = await in_error(ada, database, "DataLost", home_ctx=HOME, archive_key="gone")
    key = await kept_archive(database, ws, "op1")
    foreign = await kept_archive(database, await in_error(ada, database, "Timeout"), "op2")
    for body in ({}, {"archive_key": "gone"}, {"archive_key": foreign}):
        refused = await admin.post(f"{W}/{ws}:recover", json=body)
        assert refused.status_code == 400, body
        assert key in refused.json()["error"]["message"]
    assert (await admin.post(f"{W}/{ws}:recover")).status_code == 400
    assert (await row_of(database, ws))["archive_key"] == "gone"
    listed = (await ada.get(f"{W}/{ws}/archives")).json()["items"]
    assert [item["archive_key"] for item in listed] == [key]

    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": key})).status_code == 202
    row = await row_of(database, ws)
    assert (row["archive_key"], row["home_ctx"], row["error_reason"]) == (key, None, None)

    await put_in_state(database, ws, error_reason="ArchiveCorrupted")
    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": None})).status_code == 202
    row = await row_of(database, ws)
    assert (row["archive_key"], row["home_ctx"], row["error_reason"]) == (None, None, None)


async def test_a_copy_that_is_recovered_with_an_empty_home_is_not_copied_again(api: Api, database: Database) -> None:
    """The original may have other files by then, or belong to somebody else."""
    ada, admin = await api.user("ada"), await api.signed_in()
    original = await in_error(ada, database, "Timeout")
    ws = await in_error(ada, database, "DataLost", archive_key="gone", copy_of=original)
    key = await kept_archive(database, ws, "op1")
    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": key})).status_code == 202
    assert (await row_of(database, ws))["copy_of"] == original, "its archives may be the original's"
    await put_in_state(database, ws, error_reason="DataLost")
    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": None})).status_code == 202
    row = await row_of(database, ws)
    assert (row["archive_key"], row["copy_of"]) == (None, None)


async def test_recovering_never_forgets_a_volume_that_is_there(api: Api, database: Database) -> None:
    admin = await api.signed_in()
    conditions = {"storage.volume_ready": {"status": "True", "reason": "Ready", "message": ""}}
    ws = await in_error(admin, database, "ArchiveCorrupted", home_ctx=HOME, conditions=Jsonb(conditions))
    key = await kept_archive(database, ws, "op1")
    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": key})).status_code == 202
    assert (await row_of(database, ws))["home_ctx"]["incarnation"] == "i1"


async def test_other_errors_are_recovered_without_choosing_an_archive(api: Api, database: Database) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    ws = await in_error(ada, database, "Timeout", archive_key="kept", desired_state="RUNNING")
    assert (await admin.post(f"{W}/{ws}:recover", json={"archive_key": None})).status_code == 409
    assert (await admin.post(f"{W}/{ws}:recover", json={})).status_code == 202
    row = await row_of(database, ws)
    assert (row["error_reason"], row["archive_key"], row["desired_state"]) == (None, "kept", "RUNNING")
    await put_in_state(database, ws, error_reason="Timeout")
    assert (await admin.post(f"{W}/{ws}:recover")).status_code == 202
