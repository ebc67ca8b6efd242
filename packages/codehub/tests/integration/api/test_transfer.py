"""Giving a workspace to another user, and the message for a disabled user."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres import proxy_access, ssh_keys
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import conditions_column
from codehub.domain.limits import RunningLimits
from codehub.domain.ssh_keys import HostKey
from codehub.services.workspace_access import WorkspaceAccess
from testing.codehub.api import Api, put_in_state
from testing.codehub.dashboard import STOPPED

W = "/api/v1/workspaces"


async def test_an_administrator_gives_a_workspace_to_another_user(api: Api, database: Database) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    made = (await ada.post(W, json={"name": "handed-on"})).json()
    path = f"{W}/{made['id']}"
    await put_in_state(database, made["id"], phase="RUNNING")
    assert (await ada.post(f"{path}:transfer", json={"username": "bob"})).status_code == 403
    assert (await admin.post(f"{path}:transfer", json={"username": "nobody"})).status_code == 400
    given = await admin.post(f"{path}:transfer", json={"username": "bob"})
    assert (given.status_code, "transfer it when it has stopped" in given.text) == (409, True)
    seen = (await ada.get(path)).json()
    assert (seen["owner"], seen["desired_state"]) == ("ada", "STANDBY")
    await put_in_state(database, made["id"], phase="STANDBY", conditions=Jsonb(conditions_column(STOPPED)))
    given = await admin.post(f"{path}:transfer", json={"username": "bob"})
    assert (given.status_code, given.json()["owner"], given.json()["desired_state"]) == (202, "bob", "STANDBY")
    assert (await ada.get(path)).status_code == 403
    assert [item["name"] for item in (await bob.get(W)).json()["items"]] == ["handed-on"]
    again = await admin.post(f"{path}:transfer", json={"username": "bob"})
    assert again.status_code == 202
    timeline = (await bob.get(f"{path}/events")).json()["items"]
    assert [entry["message"] for entry in timeline if entry["kind"] == "transferred"] == ["transferred to bob"]


@pytest.mark.parametrize(
    "state",
    [
        {"phase": "RUNNING", "desired_state": "STANDBY"},
        {"phase": "RUNNING", "desired_state": "STANDBY", "operation": "STOPPING"},
        {"phase": "STANDBY", "operation": "STARTING"},
        {"phase": "STANDBY"},
        {"phase": "ERROR", "error_reason": "Timeout"},
    ],
    ids=[
        "about to stop",
        "stopping",
        "starting",
        "its start cancelled, nothing observed",
        "in error, nothing observed",
    ],
)
async def test_nobody_gets_a_workspace_whose_instance_has_the_previous_owners_secrets(
    api: Api, database: Database, state: dict[str, str]
) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    await api.user("bob")
    made = (await ada.post(W, json={"name": "theirs"})).json()["id"]
    await put_in_state(database, made, **state)
    assert (await admin.post(f"{W}/{made}:transfer", json={"username": "bob"})).status_code == 409
    seen = (await admin.get(f"{W}/{made}")).json()
    assert (seen["owner"], seen["desired_state"] in ("STANDBY", "ARCHIVED")) == ("ada", True)


async def test_whom_the_previous_owner_let_in_is_kept_out(api: Api, database: Database) -> None:
    """Their links, shared ports and workspace cookies end, and so does the host key, which they could read."""
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    made = (await ada.post(W, json={"name": "shared"})).json()["id"]
    path = f"{W}/{made}"
    assert (await ada.patch(f"{path}/ports/3000", json={"share": "link"})).status_code == 200
    link = (await ada.post(f"{path}/ports/3000/links", json={})).json()["url"].partition("codehub_link=")[2].encode()
    async with database.transaction() as tx:
        await ssh_keys.insert_host_key(tx, made, HostKey("private", "public"), datetime.now(UTC))
        for session in await (await tx.execute("SELECT id FROM sessions")).fetchall():
            names = {"session_id": str(session["id"]), "workspace_id": made}
            await proxy_access.insert_proxy_session(tx, secret_hash=os.urandom(32), now=api.clock(), **names)
            expires_at = api.clock() + timedelta(minutes=1)
            await proxy_access.insert_ticket(
                tx, ticket_hash=os.urandom(32), nonce_hash=b"n" * 32, expires_at=expires_at, **names
            )
    access = WorkspaceAccess(database, RunningLimits(1, 1), api.clock)
    ada_id = (await ada.get("/api/v1/session")).json()["user"]["id"]
    assert await access.may_open_port(made, 3000, user_id=None, links=[link]) == link
    assert (await admin.post(f"{path}:transfer", json={"username": "bob"})).status_code == 202
    assert await access.may_open_port(made, 3000, user_id=None, links=[link]) is None
    assert await access.may_open_port(made, 3000, user_id=ada_id, links=[]) is None
    assert (await bob.get(f"{path}/ports/3000/links")).json()["items"] == []
    # Nor does it come back when the new owner shares the port again.
    assert (await bob.patch(f"{path}/ports/3000", json={"share": "link"})).status_code == 200
    assert await access.may_open_port(made, 3000, user_id=None, links=[link]) is None
    async with database.transaction() as tx:
        assert await ssh_keys.host_key(tx, made) is None
        for table in ("proxy_sessions", "proxy_tickets"):
            assert await (await tx.execute(f"SELECT 1 FROM {table}".encode())).fetchall() == [], table


async def test_a_disabled_user_is_told_so_and_a_wrong_password_tells_nothing(api: Api) -> None:
    await api.user("ada")
    admin = await api.signed_in()
    users = (await admin.get("/api/v1/users")).json()["items"]
    (ada_id,) = [user["id"] for user in users if user["username"] == "ada"]
    assert (await admin.patch(f"/api/v1/users/{ada_id}", json={"disabled": True})).status_code == 200
    right = await api.client().post("/api/v1/login", json={"username": "ada", "password": "ada-ada"})
    assert (right.status_code, "disabled" in right.text) == (401, True), right.text
    wrong = await api.client().post("/api/v1/login", json={"username": "ada", "password": "not-it"})
    assert (wrong.status_code, "disabled" in wrong.text) == (401, False), wrong.text
