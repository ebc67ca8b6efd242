"""What administrators do to users."""

from __future__ import annotations

import asyncio

from codehub.adapters.postgres.pool import Database
from codehub.api.context import make_users
from testing.codehub.api import ADMIN, Api, new_id, put_in_state, running_api

U = "/api/v1/users"


async def test_an_administrator_adds_lists_changes_and_removes_users(api: Api) -> None:
    admin = await api.signed_in()
    ada = (await admin.post(U, json={"username": "ada", "password": "ada-ada-ada"})).json()
    assert ada == {**ada, "username": "ada", "is_admin": False, "disabled": False, "workspaces": 0}
    assert (await admin.post(U, json={"username": "ada", "password": "ada-ada-ada"})).status_code == 409
    listed = (await admin.get(U)).json()
    assert [item["username"] for item in listed["items"]] == ["ada", "admin"]
    session = await api.signed_in("ada", "ada-ada-ada")
    assert (await admin.patch(f"{U}/{ada['id']}", json={"password": "another one"})).status_code == 200
    assert (await session.get("/api/v1/session")).status_code == 401
    promoted = await admin.patch(f"{U}/{ada['id']}", json={"is_admin": True})
    assert promoted.json()["is_admin"] is True
    assert (await (await api.signed_in("ada", "another one")).get(U)).status_code == 200
    assert (await admin.delete(f"{U}/{ada['id']}")).status_code == 204
    assert (await admin.get(f"{U}/{ada['id']}")).status_code == 404
    assert (await admin.delete(f"{U}/{new_id()}")).status_code == 404
    assert (await admin.get(f"{U}/nonsense")).status_code == 404


async def test_users_are_administrators_business(api: Api) -> None:
    ada = await api.user("ada")
    own = (await ada.get("/api/v1/session")).json()["user"]["id"]
    for method, path, body in (
        ("GET", U, None),
        ("GET", f"{U}/{own}", None),
        ("POST", U, {"username": "eve", "password": "eve-eve-eve"}),
        ("PATCH", f"{U}/{own}", {"is_admin": True}),
        ("DELETE", f"{U}/{own}", None),
    ):
        assert (await ada.request(method, path, json=body)).status_code == 403


async def test_the_last_administrator_stays_even_against_two_requests_at_once(api: Api) -> None:
    first = await api.signed_in()
    second = await api.user("second", is_admin=True)
    ids = [(await each.get("/api/v1/session")).json()["user"]["id"] for each in (first, second)]
    answers = await asyncio.gather(
        first.patch(f"{U}/{ids[1]}", json={"is_admin": False}),
        second.patch(f"{U}/{ids[0]}", json={"disabled": True}),
    )
    assert 200 in [answer.status_code for answer in answers]
    left = first if (await first.get(U)).status_code == 200 else second
    admins = [user for user in (await left.get(U)).json()["items"] if user["is_admin"] and not user["disabled"]]
    assert len(admins) == 1
    for change in ({"is_admin": False}, {"disabled": True}):
        assert (await left.patch(f"{U}/{admins[0]['id']}", json=change)).status_code == 409
    assert (await left.delete(f"{U}/{admins[0]['id']}")).status_code == 409


async def test_a_user_with_workspaces_stays_until_they_are_purged(api: Api, database: Database) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    ada_id = (await ada.get("/api/v1/session")).json()["user"]["id"]
    ws = (await ada.post("/api/v1/workspaces", json={"name": "x", "start": False})).json()["id"]
    assert (await admin.delete(f"{U}/{ada_id}")).status_code == 409
    await put_in_state(database, ws, desired_state="DELETED", deleted_at="2026-11-01")
    assert (await admin.delete(f"{U}/{ada_id}")).status_code == 409
    await put_in_state(database, ws, purged_at="2026-11-02")
    assert (await admin.delete(f"{U}/{ada_id}")).status_code == 204
    async with database.transaction() as tx:
        row = await (await tx.execute("SELECT count(*) AS n FROM workspaces WHERE id = %s", [ws])).fetchone()
    assert row is not None
    assert row["n"] == 1, "the GC needs the row of what it removes"


async def test_where_workspaces_are_not_isolated_no_second_user_is_made(database: Database) -> None:
    async with running_api(database, second_user_refused=lambda: "install bubblewrap first") as api:
        admin = await api.signed_in()
        answer = await admin.post(U, json={"username": "ada", "password": "ada-ada-ada"})
        assert answer.status_code == 409
        assert "bubblewrap" in answer.json()["error"]["message"]


async def test_the_first_administrator_is_made_once_and_never_reset(api: Api) -> None:
    users = make_users(api.deps)
    assert await users.ensure_first_admin("admin", "another password") is False
    await api.signed_in(*ADMIN)
