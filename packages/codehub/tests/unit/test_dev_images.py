"""What becomes of an image that devcontainer.json requests: who may have it, when it is applied, and how many are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from codehub.control.dev_images import DevImages
from codehub.domain.dev_image import DevImage
from codehub.domain.errors import Invalid
from codehub.ports.instances import Upstream
from testing.codehub.dev_image_world import World, a_question, a_status, a_world, described, run
from testing.codehub.workspaces import workspace

_IMAGE: dict[str, object] = {"image": "node:22"}
_BUILD: dict[str, object] = {"build": {"dockerfile": "Dockerfile"}}


def test_an_allowed_image_is_applied_and_a_build_only_where_an_administrator_switched_it_on() -> None:
    assert described(a_world(), _IMAGE, builds=False)["image"]["state"] == "auto"
    assert described(a_world(), _BUILD)["image"]["state"] == "auto"
    off = described(a_world(), _BUILD, builds=False)
    assert "image" not in off
    assert off["ignored"][1] == [
        "build",
        "is not built here: an administrator can allow it (CODEHUB_DEVCONTAINER_BUILDS)",
    ]
    both = described(a_world(), {"image": "node:22", "features": {"./x": {}}}, builds=False)
    assert [key for key, _ in both["ignored"]] == ["mounts", "image", "features"]


@pytest.mark.parametrize(
    ("world", "document", "why"),
    [
        (a_world(), {"image": "evil:1"}, "CODEHUB_ALLOWED_IMAGES"),
        (a_world(), {"build": {"dockerfile": "None"}}, "app/None is not in the repository"),
        (replace(a_world(), files={"app/Dockerfile": b"FROM evil\n"}), _BUILD, "CODEHUB_ALLOWED_IMAGES"),
        (replace(a_world(), files={"app/Dockerfile": b"ADD http://x /\n"}), _BUILD, "line 1"),
        (World(workspace()), _IMAGE, "on Docker only"),
    ],
)
def test_what_is_not_applied_says_why(world: World, document: dict[str, object], why: str) -> None:
    found = described(world, document)
    assert "image" not in found
    assert why in found["ignored"][-1][1]


def test_where_workspaces_are_processes_nothing_is_said_twice() -> None:
    answer: dict[str, object] = {"ignored": [["image", "needs a container: workspaces run as processes here"]]}
    world = World(workspace())
    found = run(world, lambda images: images.describe("w", a_status(), a_question(_IMAGE), answer))
    assert found == answer


def test_what_a_feature_requests_of_the_container_is_said_to_have_no_effect() -> None:
    world = a_world()
    world.files["app/tool"] = b'{"id": "tool", "mounts": ["source=/,target=/host"], "privileged": true}'
    found = described(world, {"image": "node:22", "features": {"./tool": {}}})
    assert found["image"]["state"] == "auto"
    assert [key for key, _ in found["ignored"]] == ["mounts", "./tool mounts", "./tool privileged"]


def test_a_helper_of_an_older_version_gets_its_image_at_the_next_start() -> None:
    found = described(a_world(), _IMAGE, question={"text": json.dumps(_IMAGE), "folder": "/x", "home": "/"})
    assert "stopped and started" in found["ignored"][-1][1]


def test_only_the_first_image_is_applied_without_asking() -> None:
    world = a_world()
    digest = run(world, lambda images: images.prepare("w", a_status(), a_question(_IMAGE), lambda news: None)) and (
        world.row.dev_image_next
    )
    assert digest is not None
    assert digest.bases == ("node:22",)
    applied = replace(a_world(dev_image=digest), images={"node:22"})
    assert described(applied, _IMAGE, a_status("node:22"))["image"]["state"] == "applied"
    assert described(applied, {"image": "node:23"}, a_status("node:22"))["image"]["state"] == "offered"
    # Made by an older version of CodeHub: its owner decides.
    old = World(replace(workspace(), instance_backend="local-docker"))
    assert described(old, _IMAGE)["image"]["state"] == "offered"
    # Removed from the engine meanwhile: prepared again.
    assert described(replace(applied, images=set()), _IMAGE)["image"]["state"] == "auto"
    # It is there, but the workspace runs with another one: it did not start with it.
    failed = described(applied, _IMAGE)
    assert failed["image"]["state"] == "failed"
    assert applied.dropped == [digest.digest]


def test_an_image_is_built_once_for_all_that_wait_for_it_and_two_at_once() -> None:
    world = a_world()

    async def same(images: DevImages) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(images.prepare("w", a_status(), a_question(_BUILD), lambda news: None))

    run(world, same)
    assert len(world.built) == 1

    async def several(images: DevImages) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(images.prepare(f"w{number}", a_status(), a_question(_BUILD), lambda news: None))

    crowd = a_world()
    run(crowd, several)
    assert crowd.at_once[1] == 2


def test_a_workspace_that_never_sends_its_files_keeps_no_slot_for_ever() -> None:
    class Silent(World):
        @asynccontextmanager
        async def context(self, upstream: Upstream, path: str, most: int) -> AsyncIterator[None]:
            await asyncio.Event().wait()
            yield None

    world = Silent(a_world().row, a_world().files)

    async def several(images: DevImages) -> list[Any]:
        return await asyncio.gather(
            *(images.prepare(f"w{number}", a_status(), a_question(_BUILD), lambda news: None) for number in range(4)),
            return_exceptions=True,
        )

    assert [str(error) for error in run(world, several)] == ["it took too long"] * 4


def test_large_files_of_a_build_are_checked_at_the_pace_of_their_owner() -> None:
    """A Dockerfile of 256 KiB takes a tenth of a second, in which the coordinator does nothing else."""
    world = a_world()
    world.files["app/Dockerfile"] = b"FROM node:22\n" + b"RUN true\n" * 28_000
    world.owners["w-other"] = "another"
    loop_times: dict[str, float] = {}

    async def flood(images: DevImages) -> None:
        async def describe(workspace_id: str) -> None:
            answer: dict[str, object] = {"ignored": []}
            await images.describe(workspace_id, a_status(), a_question(_BUILD), answer)
            loop_times[workspace_id] = asyncio.get_running_loop().time()

        begun = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(describe(f"w{number}"))
            group.create_task(describe("w-other"))
        assert loop_times["w-other"] == begun
        assert max(loop_times.values()) - begun > 20

    run(world, flood)


def test_a_user_with_many_builds_does_not_make_another_wait_for_all_of_them() -> None:
    world = a_world()
    world.owners["w-other"] = "another"

    async def other_last(images: DevImages) -> int:
        async def build(workspace_id: str) -> None:
            await images.prepare(workspace_id, a_status(), a_question(_BUILD), lambda news: None)

        crowd = [asyncio.create_task(build(f"w{number}")) for number in range(20)]
        while world.at_once[0] < 2:
            await asyncio.sleep(0)
        await build("w-other")
        before = len(world.built)
        await asyncio.gather(*crowd)
        return before

    assert run(world, other_last) <= 4
    assert len(world.built) == 21


def test_no_build_replaces_the_image_of_another_workspace() -> None:
    # The same Dockerfile can copy other files: each build has a name of its own.
    world = a_world()

    async def both(images: DevImages) -> None:
        for each in ("a", "b"):
            await images.prepare(each, a_status(), a_question(_BUILD), lambda news: None)

    run(world, both)
    assert len(world.built) == len(set(world.built)) == 2


def test_a_build_that_fails_leaves_the_row_alone_and_one_that_nobody_waits_for_ends() -> None:
    world = replace(a_world(), fails="exit 5")
    with pytest.raises(Invalid, match="exit 5"):
        run(world, lambda images: images.prepare("w", a_status(), a_question(_BUILD), lambda news: None))
    assert world.row.dev_image_next is None
    endless = replace(a_world(), takes_s=1e6)

    async def abandoned(images: DevImages) -> None:
        waiting = asyncio.create_task(images.prepare("w", a_status(), a_question(_BUILD), lambda news: None))
        await asyncio.sleep(5)
        assert endless.at_once[0] == 1
        images.abandon("w")
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    run(endless, abandoned)
    assert endless.at_once[0] == 0


def test_an_image_that_is_no_longer_allowed_or_there_is_not_started() -> None:
    world = replace(a_world(), images={"a", "b"})

    async def usable(images: DevImages) -> list[bool]:
        found = [DevImage("d", "a", ("node:1",)), DevImage("d", "b", ("evil",)), DevImage("d", "c", ("node:1",))]
        return [await images.usable(image) for image in found]

    assert run(world, usable) == [True, False, False]
