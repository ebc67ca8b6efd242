"""Workspaces: creating, listing, changing, and the verbs by status."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, docker_backends, new_id, new_name, put_in_state, running_api

W = "/api/v1/workspaces"
SHOWN = {
    "id", "name", "description", "memo", "owner", "image_ref", "status", "phase", "operation", "desired_state",
    "conditions", "progress", "error_reason", "error_count", "archive_key", "path", "url", "created_at", "updated_at",
    "last_access_at", "phase_changed_at", "sleeps_at", "deleted_at",
    "archives_at", "allowed_actions", "summary", "error", "error_message", "blocked", "last_archive_at",
    "keep_awake_until", "kept_awake_by", "busy_since", "template", "repo", "setup", "expected_ports", "scheduled",
    "disk_bytes", "disk_limit_bytes", "disk_warning", "archive_bytes",
}  # fmt: skip


async def made(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(W, json={"name": new_name(), "start": False, **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_workspace_is_shown_as_the_design_says(api: Api) -> None:
    ada = await api.user("ada")
    ws = await made(ada, name="Ada's", description="d", memo="m\nn", start=True)
    assert set(ws) == SHOWN
    assert ws["owner"] == "ada"
    assert ws["image_ref"] == "code-server"
    assert (ws["status"], ws["phase"], ws["operation"]) == ("PROVISIONING", "PENDING", "NONE")
    assert ws["desired_state"] == "RUNNING"
    assert ws["path"] == f"/w/{ws['id']}/"
    assert ws["url"] == f"http://localhost:8001/w/{ws['id']}/"
    assert ws["last_access_at"] is not None
    assert set(ws["conditions"]) == {
        "storage.volume_ready",
        "storage.archive_ready",
        "infra.container_ready",
        "policy.healthy",
    }
    assert ws["conditions"]["policy.healthy"]["status"] == "Unknown"
    assert (await ada.get(f"{W}/{ws['id']}")).json() == ws


async def test_a_workspace_made_without_start_wants_to_be_archived_and_was_never_accessed(api: Api) -> None:
    ws = await made(await api.user("ada"))
    assert (ws["desired_state"], ws["status"], ws["last_access_at"]) == ("ARCHIVED", "CREATED", None)


async def test_with_a_workspace_host_each_has_its_own_name(database: Database) -> None:
    config = {"workspace_host": "*.ws.example.org", "workspace_url": "https://ws.example.org:8443"}
    async with running_api(database, config=config) as api:
        ws = await made(await api.user("ada"))
        assert ws["url"] == f"https://{ws['id']}.ws.example.org:8443/w/{ws['id']}/"


async def test_lists_hold_ones_own_newest_first_in_pages_and_everybodys_for_administrators(api: Api) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    for number in range(5):
        await made(ada, name=f"a{number}")
    await made(bob, name="b")
    first = (await ada.get(W, params={"page": 1, "per_page": 2})).json()
    last = (await ada.get(W, params={"page": 3, "per_page": 2})).json()
    assert [item["name"] for item in first["items"]] == ["a4", "a3"]
    assert [item["name"] for item in last["items"]] == ["a0"]
    assert (first["page"], first["per_page"], first["total"], last["total"]) == (1, 2, 5, 5)
    beyond = (await ada.get(W, params={"page": 1_000_000})).json()
    assert (beyond["items"], beyond["per_page"], beyond["total"]) == ([], 50, 5)
    assert (await admin.get(W)).json()["total"] == 0
    assert (await admin.get(W, params={"all": "true"})).json()["total"] == 6
    assert (await ada.get(W, params={"all": "true"})).status_code == 403
    assert (await ada.get(W, params={"deleted": "true"})).status_code == 403


@pytest.mark.parametrize("query", ["page=0", "per_page=0", "per_page=201", "page=x", "page=99999999999999999999"])
async def test_pages_that_cannot_be_are_refused(api: Api, query: str) -> None:
    answer = await (await api.user("ada")).get(f"{W}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]["message"]


async def test_anothers_workspace_is_forbidden_an_unknown_one_not_found_and_an_administrators_any(api: Api) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    ws = await made(ada)
    for verb in ("", ":start", ":stop", ":archive"):
        method = "GET" if not verb else "POST"
        theirs = await bob.request(method, f"{W}/{ws['id']}{verb}")
        assert (theirs.status_code, theirs.json()["error"]["code"]) == (403, "FORBIDDEN")
        for unknown in (new_id(), "nonsense", "%00", "..%2f..%2fetc", "' OR 1=1 --", ws["id"].upper()):
            nobodys = await bob.request(method, f"{W}/{unknown}{verb}")
            assert nobodys.status_code == 404, (unknown, verb)
            assert nobodys.json()["error"]["code"] in ("WORKSPACE_NOT_FOUND", "NOT_FOUND")
    assert (await bob.delete(f"{W}/{ws['id']}")).status_code == 403
    assert (await bob.patch(f"{W}/{ws['id']}", json={"name": "mine"})).status_code == 403
    for path in ("events", "archives", "logs", "usage"):
        assert (await bob.get(f"{W}/{ws['id']}/{path}")).status_code == 403
    assert (await admin.patch(f"{W}/{ws['id']}", json={"memo": "seen"})).status_code == 200
    assert (await ada.get(f"{W}/{ws['id']}")).json()["name"] == ws["name"]


async def test_patch_changes_what_is_given_and_tells_the_timeline_who_asked(api: Api) -> None:
    ada = await api.user("ada")
    ws = await made(ada, description="before")
    changed = (await ada.patch(f"{W}/{ws['id']}", json={"name": "two", "memo": "note"})).json()
    assert (changed["name"], changed["description"], changed["memo"]) == ("two", "before", "note")
    assert changed["updated_at"] > ws["updated_at"]
    nothing = (await ada.patch(f"{W}/{ws['id']}", json={})).json()
    assert nothing == changed
    timeline = (await ada.get(f"{W}/{ws['id']}/events")).json()
    assert [(item["kind"], item["actor"]) for item in timeline["items"]] == [("edited", "ada"), ("created", "ada")]
    assert timeline["total"] == 2
    assert "name, memo" in timeline["items"][0]["message"]


async def test_patch_asks_for_a_state_at_any_status_but_deleting(api: Api) -> None:
    ada = await api.user("ada")
    ws = await made(ada)
    for desired in ("RUNNING", "STANDBY", "ARCHIVED"):
        answer = await ada.patch(f"{W}/{ws['id']}", json={"desired_state": desired})
        assert (answer.status_code, answer.json()["desired_state"]) == (200, desired)
    assert (await ada.patch(f"{W}/{ws['id']}", json={"desired_state": "DELETED"})).status_code == 400
    await ada.delete(f"{W}/{ws['id']}", params={"force": "true"})
    refused = await ada.patch(f"{W}/{ws['id']}", json={"desired_state": "RUNNING"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "INVALID_STATE")
    assert (await ada.patch(f"{W}/{ws['id']}", json={"memo": "still"})).status_code == 200


# status → columns that give it, and the verbs it allows
STATES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "CREATED": ({"desired_state": "ARCHIVED"}, {"start", "delete"}),
    "PROVISIONING": ({"desired_state": "RUNNING"}, set()),
    "RUNNING": ({"desired_state": "RUNNING", "phase": "RUNNING"}, {"stop", "archive"}),
    "STOPPING": ({"desired_state": "STANDBY", "phase": "RUNNING"}, set()),
    "STOPPED": (
        {"desired_state": "STANDBY", "phase": "STANDBY", "last_access_at": "2026-01-01"},
        {"start", "archive", "delete"},
    ),
    "ERROR": (
        {"desired_state": "RUNNING", "phase": "ERROR", "error_reason": "Timeout"},
        {"start", "stop", "archive", "recover", "delete"},
    ),
    "DELETING": ({"desired_state": "DELETED"}, set()),
}


@pytest.mark.parametrize("status", STATES)
async def test_the_verbs_are_judged_by_status(api: Api, database: Database, status: str) -> None:
    admin = await api.signed_in()
    columns, allowed = STATES[status]
    for verb in ("start", "stop", "archive", "recover", "undelete", "delete"):
        ws = await made(admin)
        await put_in_state(database, ws["id"], **columns)
        shown = (await admin.get(f"{W}/{ws['id']}")).json()
        assert shown["status"] == status
        before = shown["allowed_actions"]
        if verb == "delete":
            answer = await admin.delete(f"{W}/{ws['id']}")
        else:
            answer = await admin.post(f"{W}/{ws['id']}:{verb}")
        assert (verb in before) is (verb in allowed), (status, verb, before)
        good = 204 if verb == "delete" else 202
        assert answer.status_code == (good if verb in allowed else 409), (status, verb, answer.text)
        # frees the slot for the next one
        assert (await admin.delete(f"{W}/{ws['id']}", params={"force": "true"})).status_code == 204


async def test_what_is_archived_already_is_not_archived_again(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    ws = await made(ada)
    await put_in_state(database, ws["id"], phase="ARCHIVED", last_access_at="2026-01-01")
    assert (await ada.post(f"{W}/{ws['id']}:archive")).status_code == 409
    assert (await ada.post(f"{W}/{ws['id']}:start")).status_code == 202


async def test_a_deleted_workspace_is_not_found_until_an_administrator_undeletes_it(
    api: Api, database: Database
) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    ws = await made(ada)
    assert (await ada.delete(f"{W}/{ws['id']}")).status_code == 204
    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert (shown["status"], shown["phase"]) == ("DELETING", "DELETING")
    await put_in_state(database, ws["id"], deleted_at="2026-11-01", phase="DELETED")
    assert (await ada.get(f"{W}/{ws['id']}")).json()["error"]["code"] == "WORKSPACE_NOT_FOUND"
    assert (await ada.get(W)).json()["total"] == 0
    listed = (await admin.get(W, params={"all": "true", "deleted": "true"})).json()
    assert [(item["id"], item["status"]) for item in listed["items"]] == [(ws["id"], "DELETED")]
    assert (await ada.post(f"{W}/{ws['id']}:undelete")).status_code == 403
    back = await admin.post(f"{W}/{ws['id']}:undelete")
    assert (back.status_code, back.json()["desired_state"]) == (202, "ARCHIVED")
    assert (await ada.get(f"{W}/{ws['id']}")).status_code == 200
    assert (await admin.post(f"{W}/{ws['id']}:undelete")).status_code == 409
    await put_in_state(database, ws["id"], deleted_at="2026-11-01", purged_at="2026-11-02")
    assert (await admin.post(f"{W}/{ws['id']}:undelete")).status_code == 409
    assert (await admin.post(f"{W}/{new_id()}:undelete")).status_code == 404


@pytest.mark.parametrize(
    ("image", "process", "docker"),
    [
        ("jupyterlab", 201, 201),
        ("only-image", 400, 201),
        ("example/code-server:1", 400, 201),
        ("allowed.example/team/ide:2", 400, 201),
        ("tagless.example/team/app:1.2", 400, 201),  # allowed without a tag
        ("not an image!!", 400, 400),  # even where everything is allowed
        ("evil.example/ide", 400, 400),
        ("../../etc/passwd", 400, 400),
    ],
)
async def test_an_image_is_a_profile_or_let_through(
    database: Database, image: str, process: int, docker: int
) -> None:
    body = {"name": "x", "image_ref": image, "start": False}
    async with running_api(database) as api:
        assert (await (await api.user("ada")).post(W, json=body)).status_code == process
    config = {"allowed_images": ("allowed.example/*", "tagless.example/team/app", "* *")}
    async with running_api(database, choose_backends=docker_backends, config=config) as api:
        answer = await (await api.user("bob")).post(W, json=body)
        assert answer.status_code == docker
        if docker == 400:
            assert "image_ref" in answer.json()["error"]["message"]


async def test_a_running_workspace_says_when_it_sleeps(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    ws = await made(ada, start=True)
    await put_in_state(
        database,
        ws["id"],
        phase="RUNNING",
        phase_changed_at="2026-11-01T10:00:00Z",
        last_access_at="2026-11-01T11:00:00Z",
        operation="NONE",
        progress=Jsonb({"step": "old", "done": 1, "total": 2, "unit": "bytes"}),
    )
    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert shown["sleeps_at"] == "2026-11-01T11:10:00Z"
    assert shown["progress"] is None, "progress belongs to an operation under way"
    assert shown["archives_at"] is None
    gap = {"until": "2026-11-01T11:07:00Z", "gaps": [["2026-11-01T11:05:00+00:00", "2026-11-01T11:07:00+00:00"]]}
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO system_facts (name, value) VALUES ('activity_coverage', %s)", [Jsonb(gap)])
    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert shown["sleeps_at"] == "2026-11-01T11:12:00Z", "time in which nothing could be seen does not count"
    await put_in_state(database, ws["id"], phase="STANDBY", desired_state="STANDBY")
    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert (shown["sleeps_at"], shown["archives_at"]) == (None, "2026-11-01T10:30:00Z")
    await put_in_state(database, ws["id"], phase="STANDBY", operation="STARTING")
    assert (await ada.get(f"{W}/{ws['id']}")).json()["progress"]["percent"] == 50.0


async def test_a_hundred_starts_at_once_at_a_limit_of_two_give_two(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    ids = [(await made(ada, name=f"n{number}"))["id"] for number in range(100)]
    answers = await asyncio.gather(*(ada.post(f"{W}/{id_}:start") for id_ in ids))
    assert sorted(answer.status_code for answer in answers) == [202] * 2 + [429] * 98
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "RUNNING_LIMIT_EXCEEDED"
    async with database.transaction() as tx:
        row = await (
            await tx.execute("SELECT count(*) AS n FROM workspaces WHERE desired_state = 'RUNNING'")
        ).fetchone()
    assert row is not None
    assert row["n"] == 2


async def test_the_limit_in_all_holds_across_users_and_ways_of_asking(database: Database) -> None:
    from codehub.domain.limits import RunningLimits

    async with running_api(database, config={"limits": RunningLimits(5, 3)}) as api:
        people = [await api.user(name) for name in ("ada", "bob", "cyd")]
        ids = [(person, (await made(person))["id"]) for person in people for _ in range(5)]
        answers = await asyncio.gather(
            *(person.post(f"{W}/{id_}:start") for person, id_ in ids),
            *(person.patch(f"{W}/{id_}", json={"desired_state": "RUNNING"}) for person, id_ in ids),
            *(person.post(W, json={"name": "new"}) for person in people),
        )
        async with database.transaction() as tx:
            row = await (
                await tx.execute(
                    "SELECT count(*) FILTER (WHERE desired_state = 'RUNNING') AS running, count(*) AS n FROM workspaces"
                )
            ).fetchone()
        assert row is not None
        assert row["running"] == 3
        created = [answer.status_code for answer in answers[-3:]].count(201)
        assert row["n"] == 15 + created, "a create over the limit creates nothing"


async def test_what_is_in_error_takes_no_place_and_needs_one_to_start_again(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    first = await made(ada, start=True)
    await made(ada, start=True)
    assert (await ada.post(W, json={"name": "third"})).status_code == 429
    assert (await ada.get(W)).json()["total"] == 2
    await put_in_state(database, first["id"], phase="ERROR", error_reason="Timeout")
    assert (await ada.post(W, json={"name": "third"})).status_code == 201
    assert (await ada.post(f"{W}/{first['id']}:start")).status_code == 429
    assert (await ada.post(f"{W}/{first['id']}:stop")).status_code == 202
