"""Names of workspaces are unique per owner: `codehub ws open NAME` and `ssh NAME.codehub` mean one workspace."""

from __future__ import annotations

import asyncio

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, put_in_state

W = "/api/v1/workspaces"


async def test_a_name_is_refused_while_another_workspace_of_the_owner_has_it(api: Api, database: Database) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    first = (await ada.post(W, json={"name": "api", "start": False})).json()
    again = await ada.post(W, json={"name": "api", "start": False})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "NAME_TAKEN")
    assert f"'api' ({first['id']}); choose another name" in again.json()["error"]["message"]
    assert (await bob.post(W, json={"name": "api", "start": False})).status_code == 201, "names are per owner"
    assert (await ada.post(W, json={"name": "API", "start": False})).status_code == 201

    other = (await ada.post(W, json={"name": "other", "start": False})).json()
    renamed = await ada.patch(f"{W}/{other['id']}", json={"name": "api"})
    assert (renamed.status_code, renamed.json()["error"]["code"]) == (409, "NAME_TAKEN")
    same = await ada.patch(f"{W}/{first['id']}", json={"name": "api", "memo": "its own name is not in the way"})
    assert same.status_code == 200
    await put_in_state(database, other["id"], phase="STANDBY", desired_state="STANDBY")
    copied = await ada.post(f"{W}/{other['id']}:duplicate", json={"name": "api", "start": False})
    assert (copied.status_code, copied.json()["error"]["code"]) == (409, "NAME_TAKEN")

    assert (await ada.delete(f"{W}/{first['id']}")).status_code == 204
    free = await ada.post(W, json={"name": "api", "start": False})
    assert free.status_code == 201, "a name is free as soon as its workspace is being deleted"


async def test_of_many_requests_at_once_one_gets_the_name(api: Api) -> None:
    ada = await api.user("ada")
    others = [(await ada.post(W, json={"name": f"n{number}", "start": False})).json()["id"] for number in range(4)]
    answers = await asyncio.gather(
        *(ada.post(W, json={"name": "api", "start": False}) for _ in range(8)),
        *(ada.patch(f"{W}/{other}", json={"name": "api"}) for other in others),
    )
    assert sorted(answer.status_code for answer in answers)[1:] == [409] * 11
    names = [item["name"] for item in (await ada.get(W)).json()["items"]]
    assert names.count("api") == 1


async def test_names_that_were_equal_before_stay_and_can_be_told_apart(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    first, second = [(await ada.post(W, json={"name": name, "start": False})).json()["id"] for name in ("a", "b")]
    await put_in_state(database, second, name="a")
    assert (await ada.patch(f"{W}/{second}", json={"memo": "x", "desired_state": "ARCHIVED"})).status_code == 200
    assert (await ada.patch(f"{W}/{second}", json={"name": "b"})).status_code == 200
    assert (await ada.get(f"{W}/{first}")).json()["name"] == "a"


async def test_what_comes_to_an_owner_by_others_gets_the_next_free_name(api: Api, database: Database) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    theirs = (await ada.post(W, json={"name": "api", "start": False})).json()["id"]
    deleted = (await bob.post(W, json={"name": "api", "start": False})).json()["id"]
    await put_in_state(database, deleted, phase="DELETED", desired_state="DELETED", deleted_at=api.clock())
    assert (await bob.post(W, json={"name": "api", "start": False})).status_code == 201

    given = await admin.post(f"{W}/{theirs}:transfer", json={"username": "bob"})
    assert (given.status_code, given.json()["name"]) == (202, "api-2")
    back = await admin.post(f"{W}/{deleted}:undelete")
    assert back.json()["name"] == "api-3", back.text
    messages = [entry["message"] for entry in (await bob.get(f"{W}/{theirs}/events")).json()["items"]]
    assert "renamed to api-2: api was in use" in messages
