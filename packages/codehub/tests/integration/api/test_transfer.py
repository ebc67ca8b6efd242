"""Giving a workspace to another user, and the message for a disabled user."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, put_in_state

W = "/api/v1/workspaces"


async def test_an_administrator_gives_a_workspace_to_another_user(api: Api, database: Database) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    made = (await ada.post(W, json={"name": "handed-on"})).json()
    path = f"{W}/{made['id']}"
    await put_in_state(database, made["id"], phase="RUNNING")
    assert (await ada.post(f"{path}:transfer", json={"username": "bob"})).status_code == 403
    assert (await admin.post(f"{path}:transfer", json={"username": "nobody"})).status_code == 400
    given = await admin.post(f"{path}:transfer", json={"username": "bob"})
    assert (given.status_code, given.json()["owner"], given.json()["desired_state"]) == (202, "bob", "STANDBY")
    assert (await ada.get(path)).status_code == 403
    assert [item["name"] for item in (await bob.get(W)).json()["items"]] == ["handed-on"]
    again = await admin.post(f"{path}:transfer", json={"username": "bob"})
    assert again.status_code == 202
    timeline = (await bob.get(f"{path}/events")).json()["items"]
    assert [entry["message"] for entry in timeline if entry["kind"] == "transferred"] == ["transferred to bob"]


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
