"""What scripts get of the command: exit codes, waiting, links. A whole day is in stack/test_a_day.py."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx

from testing.codehub.dashboard import ARCHIVED, PASSWORD, RUNNING, TIMEOUT_S, DashboardServer, Stage

from .conftest import Command


async def test_opening_a_workspace_opens_the_browser_with_a_link_that_signs_it_in(
    signed_in: Command, stage: Stage, tmp_path: Path
) -> None:
    workspace_id = await stage.add("api", **RUNNING)
    program = tmp_path / "browser"
    program.write_text('#!/bin/sh\nprintf %s "$1" > "$0.opened"\n')
    program.chmod(0o755)
    assert await signed_in.ok("ws", "open", "api", BROWSER=str(program)) == ""
    link = (tmp_path / "browser.opened").read_text()
    by_program = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with httpx.AsyncClient() as browser:
        page = (await browser.get(link, headers=by_program)).text
        target, session_key = (_meta(page, name) for name in ("codehub-next", "codehub-session-key"))
        assert target == f"http://localhost:8001/w/{workspace_id}/"
        both_halves = {"X-CodeHub-Session-Key": session_key}
        user = (await browser.get(f"{signed_in.server.url}/api/v1/whoami", headers=both_halves)).json()["user"]
    assert user["username"] == "admin"


def _meta(page: str, name: str) -> str:
    found = re.search(f'name="{name}" content="([^"]*)"', page)
    assert found is not None, page
    return found[1]


async def test_exit_codes_say_what_kind_of_failure_it_was(
    signed_in: Command, stage: Stage, dashboard: DashboardServer
) -> None:
    await stage.add("twin")
    await stage.add("twin")
    await stage.add("busy", **{**RUNNING, "desired_state": "DELETED"})
    for words, code, said in (
        (("ws", "show", "nothing"), 5, "codehub ws ls"),
        (("ws", "start", "twin"), 6, "use an id"),
        (("ws", "start", "busy"), 6, "codehub ws show"),
        (("ws", "create", ""), 2, "name"),
        (("ws", "create", "x", "--profile", "nonsense"), 2, "nonsense"),
        (("ws", "nonsense"), 2, "nonsense"),
        (("ws", "edit", "twin"), 2, "--name"),
    ):
        failed = await signed_in(*words)
        assert failed.code == code, (words, failed)
        assert said in failed.err, (words, failed)
        assert "Traceback" not in failed.err


async def test_waiting_outlives_a_restart_of_the_server_and_gives_up_when_told(
    signed_in: Command, stage: Stage, dashboard: DashboardServer
) -> None:
    workspace_id = await stage.add("api")
    start = asyncio.create_task(signed_in("ws", "start", "api"))
    await stage.until(workspace_id, desired_state="RUNNING")
    await dashboard.stop()
    await dashboard.start()
    await stage.change(workspace_id, **RUNNING)
    assert (await start).code == 0
    await stage.change(workspace_id, phase="STANDBY", desired_state="STANDBY")
    gave_up = await signed_in("ws", "start", "api", "--timeout", "0.1")
    assert (gave_up.code, "it continues" in gave_up.err) == (7, True)


async def test_following_says_in_lines_how_far_it_is_where_nothing_can_be_drawn_over(
    signed_in: Command, stage: Stage
) -> None:
    workspace_id = await stage.add("api")
    process = await signed_in.begin("ws", "archive", "api")
    assert process.stderr is not None
    await stage.until(workspace_id, desired_state="ARCHIVED")
    progress = {"step": "archive", "done": 410_000_000, "total": 660_000_000, "unit": "bytes"}
    for changes, said in (
        ({"operation": "ARCHIVING", "progress": progress}, "api: archiving, 62 %, 410 MB of 660 MB\n"),
        (
            {"progress": {**progress, "step": "verify"}},
            "api: archiving, verifying what was written, 62 %, 410 MB of 660 MB\n",
        ),
    ):
        await stage.change(workspace_id, **changes)
        async with asyncio.timeout(TIMEOUT_S):
            assert (await process.stderr.readline()).decode() == said
    # A moment in which nothing is known of how far it is, is nothing new.
    await stage.change(workspace_id, progress=None)
    await stage.change(workspace_id, **ARCHIVED)
    done = await signed_in.end(process)
    assert (done.code, done.out, done.err) == (0, "api: Archived\n", ""), done


async def test_users_are_managed_with_the_admins_password(signed_in: Command) -> None:
    password = {"CODEHUB_PASSWORD": "correct horse battery"}
    await signed_in.ok("admin", "users", "add", "ada", "--password-stdin", stdin="long enough\n", **password)
    await signed_in.ok("admin", "users", "set", "ada", "--disable", **password)
    (ada,) = [
        user
        for user in json.loads(await signed_in.ok("admin", "users", "ls", "--json", **password))["items"]
        if user["username"] == "ada"
    ]
    assert ada["disabled"] is True
    await signed_in.ok("admin", "users", "rm", "ada", **password)
    assert (await signed_in("admin", "users", "rm", "ada", **password)).code == 5


async def test_a_user_who_leaves_hands_the_workspaces_on(signed_in: Command, stage: Stage) -> None:
    password = {"CODEHUB_PASSWORD": "correct horse battery"}
    for name in ("ada", "bob"):
        await signed_in.ok("admin", "users", "add", name, "--password-stdin", stdin="long enough\n", **password)
    await stage.add("api")
    await signed_in.ok("admin", "transfer", "api", "ada")
    out = await signed_in.ok("admin", "users", "offboard", "ada", "--to", "bob", **password)
    assert out == "1 workspace transferred to bob. ada is removed.\n"
    owners = {
        item["name"]: item["owner"] for item in json.loads(await signed_in.ok("ws", "ls", "--all", "--json"))["items"]
    }
    assert owners["api"] == "bob"
    assert (await signed_in("admin", "users", "rm", "ada", **password)).code == 5, "the account is gone"


async def test_a_running_workspace_is_given_away_when_it_has_stopped(signed_in: Command, stage: Stage) -> None:
    password: dict[str, Any] = {"CODEHUB_PASSWORD": PASSWORD}
    await signed_in.ok("admin", "users", "add", "ada", "--password-stdin", stdin="long enough\n", **password)
    api = await stage.add("api", phase="RUNNING", desired_state="RUNNING")
    giving = await signed_in.begin("admin", "transfer", "api", "ada")
    await stage.until(api, desired_state="STANDBY")
    assert (await stage.row(api))["owner_user_id"] == await stage.user_id("admin")
    await stage.change(api, phase="STANDBY")
    done = await signed_in.end(giving)
    assert (done.code, done.out) == (0, "api belongs to ada now.\n"), done
    assert (await stage.row(api))["owner_user_id"] == await stage.user_id("ada")


async def test_a_user_who_leaves_has_everything_archived_and_an_archive_that_fails_stops_it(
    signed_in: Command, stage: Stage
) -> None:
    password: dict[str, Any] = {"CODEHUB_PASSWORD": PASSWORD}
    await signed_in.ok("admin", "users", "add", "ada", "--password-stdin", stdin="long enough\n", **password)
    assert (await signed_in("admin", "users", "offboard", "ada", **password)).code == 2, "neither --to nor --archive"
    asleep = await stage.add("asleep", owner="ada")
    broken = await stage.add("broken", owner="ada", phase="RUNNING", desired_state="RUNNING")
    await stage.add("idea", owner="ada", phase="PENDING", desired_state="ARCHIVED")
    await stage.add("idea", phase="PENDING", desired_state="ARCHIVED")

    async def archive(workspace_id: str) -> None:
        await stage.until(workspace_id, desired_state="ARCHIVED", error_reason=None)
        await stage.change(workspace_id, phase="ARCHIVED")

    leaving = await signed_in.begin("admin", "users", "offboard", "ada", "--archive", **password)
    await archive(asleep)
    await stage.until(broken, desired_state="ARCHIVED")
    await stage.change(broken, phase="ERROR", error_reason="RetryExceeded")
    failed = await signed_in.end(leaving)
    assert failed.code == 6, failed
    assert "no workspace was transferred" in failed.err, failed
    assert f"broken ({broken})" in failed.err, failed
    assert (await stage.row(asleep))["owner_user_id"] == await stage.user_id("ada")

    again = await signed_in.begin("admin", "users", "offboard", "ada", "--archive", **password)
    await archive(broken)  # asking again cleared the error
    done = await signed_in.end(again)
    assert done.out == "3 workspaces archived and transferred to admin. ada is removed.\n", done
    names = [item["name"] for item in json.loads(await signed_in.ok("ws", "ls", "--json"))["items"]]
    assert sorted(names) == ["asleep", "broken", "idea", "idea-2"], "names stay unique"


async def test_the_demo_makes_its_workspaces_once_and_takes_them_away(signed_in: Command, stage: Stage) -> None:
    own = await stage.add("mine")
    first = await signed_in.ok("demo", "--no-wait")
    second = await signed_in.ok("demo", "--no-wait")
    assert first.count("hello") == second.count("hello") == 1
    assert json.loads(await signed_in.ok("ws", "ls", "--json"))["total"] == 5
    await signed_in.ok("demo", "--remove")
    for name in ("hello", "weekend-project", "last-years-thesis", "idea"):
        await stage.until(await stage.named(name), desired_state="DELETED")
    assert (await stage.row(own))["desired_state"] == "STANDBY"


async def test_the_name_of_a_secret_is_never_part_of_another_address(signed_in: Command) -> None:
    refused = await signed_in("secrets", "set", "../time-zone", "--as", "file", stdin="x")
    assert (refused.code, "letters, digits, dots" in refused.err) == (2, True), refused
    assert (await signed_in("secrets", "rm", "../dotfiles")).code == 5
