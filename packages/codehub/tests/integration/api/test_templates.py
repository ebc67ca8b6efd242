"""Templates over the API: mistakes with their lines, versions, who may use them, and what a workspace is made from."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, docker_backends, new_name, put_in_state, running_api

T, W = "/api/v1/templates", "/api/v1/workspaces"
WEB = """
[templates.web]
description = "A web service"
profile = "code-server"
size = {cpus = 1.5, memory = "1G", disk = "10G"}
env = {NODE = "{parameters.node}"}
setup = ["npm ci"]
ttl_standby = "2h"

[templates.web.parameters.node]
choices = ["20", "22"]
default = "22"

[templates.web.parameters.branch]
pattern = "[a-z]+"
default = "main"
"""
SECRET = '[templates.ops]\naccess = "admins"\n'


async def push(client: httpx.AsyncClient, source: str) -> list[dict[str, Any]]:
    answer = await client.post(T, json={"source": source})
    assert answer.status_code == 201, answer.text
    return list(answer.json()["items"])


async def made(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(W, json={"name": new_name(), "start": False, **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_template_is_pushed_offered_and_used(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    assert await push(admin, WEB) == [{"name": "web", "version": 1, "new": True}]
    offered = {item["name"]: item for item in (await ada.get(T)).json()["items"]}
    assert offered["web"]["version"] == 1
    assert offered["web"]["source"] is None, "the text is for administrators"
    assert [each["type"] for each in offered["web"]["parameters"]] == ["choice", "text"]
    assert offered["code-server"]["builtin"], "every profile is offered too"

    ws = await made(ada, template="web", parameters={"node": "20"})
    assert ws["template"] == {
        "name": "web", "version": 1, "pending_version": None, "latest_version": 1, "update_available": False,
    }  # fmt: skip
    assert ws["image_ref"] == "code-server"
    mine = (await ada.get(f"{W}/{ws['id']}/template")).json()
    assert mine["parameters"] == {"node": "20"}
    assert mine["resolved"]["env"] == {"NODE": "20", "CODEHUB_PARAM_NODE": "20", "CODEHUB_PARAM_BRANCH": "main"}
    assert mine["resolved"]["size"] == {"cpus": 1.5, "memory_bytes": 1 << 30, "disk_bytes": 10 << 30}
    assert (await made(ada, template="jupyterlab"))["image_ref"] == "jupyterlab"
    assert (await made(ada, template="jupyterlab"))["template"] is None


async def test_its_own_time_to_sleep_counts(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB)
    ws = await made(ada, template="web", start=True)
    await put_in_state(api.deps.database, ws["id"], phase="RUNNING")
    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert shown["sleeps_at"] > ws["created_at"]
    slept = datetime.fromisoformat(shown["sleeps_at"]) - datetime.fromisoformat(shown["last_access_at"])
    assert slept == timedelta(hours=2)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("[templates.web]\ncolour = 1\n", "line 2: templates.web.colour: unknown key"),
        ("[templates.web]\n\nprofile = 3\n", "line 3: templates.web.profile: must be a string"),
        ('[templates.web]\nprofile = "vim"\n', "line 2: templates.web.profile: there is no profile 'vim'"),
        ("[templates.web]\nsize = {memory = 'lots'}\n", "line 2: templates.web.size.memory: 'lots' is not"),
        ("[templates.web\n", "line 1: this is not TOML"),
        ("x = 1\n", "line 1: x: only [templates.NAME] tables"),
        ('[templates.web]\nimage = "x:{parameters.v}"\n[templates.web.parameters.v]\n', "could name any image"),
        ("", "source: String should have at least 1 character"),
        ("#" * 200_000, "source: String should have at most"),
    ],
)
async def test_a_mistake_is_named_with_its_line(api: Api, source: str, said: str) -> None:
    admin = await api.signed_in()
    answer = await admin.post(T, json={"source": source})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


async def test_nothing_is_pushed_when_one_of_several_is_wrong(api: Api) -> None:
    admin = await api.signed_in()
    answer = await admin.post(T, json={"source": WEB + "\n[templates.other]\nports = [0]\n"})
    assert answer.status_code == 400
    assert {item["name"] for item in (await admin.get(T)).json()["items"]} == {
        "code-server",
        "jupyterlab",
        "only-image",
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"template": "nothing"}, "template: there is no template 'nothing'"),
        ({"template": "ops"}, "template: there is no template 'ops' that you may use"),
        ({"template": "web", "parameters": {"node": "18"}}, "parameters.node: must be one of 20, 22"),
        ({"template": "web", "parameters": {"branch": "x y"}}, "parameters.branch: must match"),
        ({"template": "web", "parameters": {"branch": "x" * 300}}, "parameters.branch: must be a text"),
        ({"template": "web", "parameters": {"colour": 1}}, "parameters.colour: the template has no such"),
        ({"template": "web", "image_ref": "jupyterlab"}, "image_ref: give a template or an image_ref"),
        ({"parameters": {"node": "20"}}, "parameters: belong to a template"),
        ({"template": "code-server", "parameters": {"x": 1}}, "parameters.x: the template has no such"),
        ({"template": "only-image"}, "image_ref: the profile 'only-image' has no command"),
    ],
)
async def test_what_cannot_be_created_is_refused_where_it_can_be_fixed(
    api: Api, body: dict[str, Any], said: str
) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB + SECRET)
    answer = await ada.post(W, json={"name": "one", **body})
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]
    assert (await ada.get(W)).json()["total"] == 0


async def test_only_administrators_push_preview_texts_and_read_versions(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB + SECRET)
    for answer in (
        await ada.post(T, json={"source": WEB}),
        await ada.post(T + ":preview", json={"source": WEB}),
        await ada.get(T + "/web/versions"),
        await ada.get(T + "/web/versions/1"),
        await ada.get(T + "?archived=true"),
        await ada.post(T + "/web:archive"),
    ):
        assert answer.status_code == 403, answer.url
    assert (await ada.get(T + "/ops")).status_code == 404
    assert "ops" not in {item["name"] for item in (await ada.get(T)).json()["items"]}


async def test_a_new_version_is_offered_with_what_it_changes_and_taken_at_the_next_start(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB)
    ws = await made(ada, template="web", parameters={"node": "20", "branch": "dev"})
    assert await push(admin, WEB) == [{"name": "web", "version": 1, "new": False}]
    newer = WEB.replace('"1G"', '"2G"').split("[templates.web.parameters.branch]")[0]
    assert await push(admin, newer) == [{"name": "web", "version": 2, "new": True}]

    shown = (await ada.get(f"{W}/{ws['id']}")).json()
    assert shown["template"]["update_available"]
    offer = (await ada.get(f"{W}/{ws['id']}/template")).json()
    assert "size: 1.5 CPUs, 1G memory, 10G disk → 1.5 CPUs, 2G memory, 10G disk" in offer["changes"]
    taken = await ada.post(f"{W}/{ws['id']}:update-template", json={"parameters": {"node": "22"}})
    assert taken.status_code == 202, taken.text
    assert taken.json()["template"] == {
        "name": "web", "version": 1, "pending_version": 2, "latest_version": 2, "update_available": False,
    }  # fmt: skip
    refused = await ada.post(f"{W}/{ws['id']}:update-template", json={"parameters": {"branch": "dev"}})
    assert refused.status_code == 400, "the newest version has no such parameter"
    versions = (await admin.get(T + "/web/versions")).json()["items"]
    assert [each["version"] for each in versions] == [2, 1]
    assert (
        '-size = {cpus = 1.5, memory = "1G", disk = "10G"}' in (await admin.get(T + "/web/versions/2")).json()["diff"]
    )


async def test_a_template_in_use_cannot_be_archived(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB)
    ws = await made(ada, template="web")
    refused = await admin.post(T + "/web:archive")
    assert refused.status_code == 409
    assert "the template 'web' is in use (1)" in refused.json()["error"]["message"]
    await put_in_state(api.deps.database, ws["id"], deleted_at=api.clock())
    assert (await admin.post(T + "/web:archive")).status_code == 204
    assert "web" not in {item["name"] for item in (await ada.get(T)).json()["items"]}
    assert (await ada.post(W, json={"name": "x", "template": "web"})).status_code == 400
    assert await push(admin, WEB) == [{"name": "web", "version": 2, "new": True}], "pushing brings it back"


async def test_a_time_zone_is_kept_and_only_names_of_zones_are(api: Api) -> None:
    ada = await api.user("ada")
    assert (await ada.get("/api/v1/time-zone")).json() == {"time_zone": "UTC"}
    assert (await ada.put("/api/v1/time-zone", json={"time_zone": "Europe/Berlin"})).status_code == 200
    assert (await ada.get("/api/v1/time-zone")).json() == {"time_zone": "Europe/Berlin"}
    for wrong in ("../../etc/passwd", "Mars/Olympus", "x" * 200, ""):
        refused = await ada.put("/api/v1/time-zone", json={"time_zone": wrong})
        assert refused.status_code == 400
        assert "time_zone" in refused.json()["error"]["message"]


async def test_a_preview_shows_what_a_workspace_would_get_on_each_runtime(database: Database) -> None:
    source = WEB.replace('profile = "code-server"', 'image = "example.org/web:{parameters.node}"')
    async with running_api(database, choose_backends=docker_backends) as api:
        admin = await api.signed_in()
        for runtime, image in (("process", "code-server"), ("docker", "example.org/web:20")):
            body = {"source": source, "parameters": {"node": "20"}, "runtime": runtime}
            (item,) = (await admin.post(T + ":preview", json=body)).json()["items"]
            assert item["problems"] == []
            assert item["resolved"]["image_ref"] == image
            assert any("image: not used" in note for note in item["notes"]) is (runtime == "process")
        (item,) = (await admin.post(T + ":preview", json={"source": "[templates.a]\nx = 1\n"})).json()["items"]
        assert item["problems"] == [
            {"line": 2, "where": "templates.a.x", "message": item["problems"][0]["message"]},
        ]
        await push(admin, source)
        ada = await api.user("ada")
        ws = await made(ada, template="web", parameters={"node": "20"})
        assert ws["image_ref"] == "example.org/web:20", "the administrator chose it: no other rule is asked"
        assert (await ada.post(W, json={"name": "x", "image_ref": "example.org/web:20"})).status_code == 400


async def test_a_workspace_over_its_disk_size_says_so(api: Api, database: Database) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    await push(admin, WEB)
    ws = await made(ada, template="web")
    assert (ws["disk_bytes"], ws["disk_limit_bytes"], ws["disk_warning"]) == (None, 10 << 30, None)
    assert (await made(ada, name="free"))["disk_limit_bytes"] is None

    async def measured(used: int) -> dict[str, Any]:
        async with database.transaction() as tx:
            await tx.execute(
                """UPDATE workspaces SET disk_bytes = %s, home_ctx = '{"incarnation": "inc-1"}' WHERE id = %s""",
                [used, ws["id"]],
            )
        return dict((await ada.get(f"{W}/{ws['id']}")).json())

    assert (await measured(5 << 30))["disk_warning"] is None
    assert "almost all" in (await measured(10 << 30))["disk_warning"]
    over = await measured(11 << 30)
    assert over["disk_bytes"] == 11 << 30
    assert over["disk_warning"] == (
        "Its files use 11.8 GB, more than its disk size of 10.7 GB. Delete files that you do not need."
    )
    assert over["desired_state"] == ws["desired_state"], "a soft limit"


async def test_the_size_of_an_archive_is_shown_where_it_is_known(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    ws = await made(ada)
    key = f"{ws['id']}/op-1/home.tar.zst"
    async with database.transaction() as tx:
        await tx.execute("UPDATE workspaces SET archive_key = %s WHERE id = %s", [key, ws["id"]])
    assert (await ada.get(f"{W}/{ws['id']}")).json()["archive_bytes"] is None
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
            " VALUES (%s, %s, 'op-1', now(), 12345, %s)",
            [ws["id"], key, "0" * 64],
        )
    assert [item["archive_bytes"] for item in (await ada.get(W)).json()["items"]] == [12345]


async def test_the_ports_of_a_template_are_expected_in_its_workspaces(api: Api) -> None:
    admin = await api.signed_in()
    await push(admin, "[templates.web]\nports = [3000, 9229]\n")
    assert (await made(admin, template="web"))["expected_ports"] == [3000, 9229]
    assert (await made(admin, name="two"))["expected_ports"] == []


async def test_a_push_does_not_replace_a_version_that_its_author_does_not_know(api: Api) -> None:
    admin, eve = await api.signed_in(), await api.user("eve", is_admin=True)
    await push(admin, WEB)
    await push(admin, WEB + "# mine\n")
    mine = WEB + "# eve's\n"
    for body in ({}, {"base": {"web": 1}}, {"base": {"web": 0}}, {"base": {"other": 2}}):
        refused = await eve.post(T, json={"source": mine, **body})
        assert refused.status_code == 409, body
        assert "web: the newest version is 2, by admin" in refused.json()["error"]["message"]
    assert (await eve.post(T, json={"source": WEB + "# mine\n"})).json()["items"][0]["new"] is False, (
        "nothing to lose"
    )
    assert (await eve.post(T, json={"source": mine, "base": {"web": 2}})).json()["items"][0]["version"] == 3
    assert (await admin.post(T, json={"source": WEB})).status_code == 409
    assert (await admin.post(T, json={"source": WEB, "base": {"web": 2}, "force": True})).status_code == 201
    other = WEB.replace("templates.web", "templates.other")
    both = await admin.post(T, json={"source": other + WEB + "# again\n", "base": {"web": 3}})
    assert both.status_code == 409
    assert (await admin.get(f"{T}/other")).status_code == 404, "all, or none of them"


async def test_of_two_first_pushes_at_once_one_is_refused(api: Api) -> None:
    admin, eve = await api.signed_in(), await api.user("eve", is_admin=True)
    for number in range(5):
        texts = [f'[templates.race{number}]\ndescription = "{who}"\n' for who in ("admin", "eve")]
        answers = await asyncio.gather(
            *(who.post(T, json={"source": text}) for who, text in zip((admin, eve), texts, strict=True))
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409]


@pytest.mark.parametrize("base", [{"web": -1}, {"web": "x"}, {f"t{number}": 1 for number in range(101)}, 1])
async def test_a_base_that_is_none_is_refused(api: Api, base: object) -> None:
    admin = await api.signed_in()
    assert (await admin.post(T, json={"source": WEB, "base": base})).status_code == 400
