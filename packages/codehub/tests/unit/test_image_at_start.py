"""Which image a workspace starts with: that of its devcontainer.json, if it may still be used, or its template's."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest

from codehub.control.act import Actor, Task
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.domain.dev_image import DevImage
from codehub.domain.model import Operation
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.control_world import CTX, PROFILE, World, run
from testing.codehub.memory.world import Volume
from testing.codehub.workspaces import workspace


@pytest.mark.parametrize(
    ("is_usable", "attempts", "started"), [(True, 0, "dev:1"), (False, 0, "template:1"), (True, 1, "template:1")]
)
def test_an_image_of_devcontainer_json_is_checked_again_at_each_start(
    is_usable: bool, attempts: int, started: str
) -> None:
    """An administrator may have forbidden its base since it was built."""
    world = World()
    asked: list[DevImage] = []

    class Images:
        async def usable(self, image: DevImage) -> bool:
            asked.append(image)
            return is_usable

    async def unused(*_: object) -> None:
        raise AssertionError("nothing else is needed for a start")

    async def main() -> None:
        world.homes.volumes[workspace().id] = Volume(CTX, {})
        backends = GuardedBackends(
            {"process": world.instances}, {"local-dir": world.homes}, world.archives, world.clock
        )
        actor = Actor(
            backends,
            HealthTracker(world.clock),
            lambda row: ("template:1", PROFILE),
            world.clock,
            lambda: "id",
            lambda: 0.5,
            unused,
            dev_images=cast(Any, Images()),
        )
        image = DevImage("d", "dev:1", ("node:22",))
        row = replace(workspace(), operation=Operation.STARTING, home_ctx=CTX, dev_image=image, error_count=attempts)
        await actor.act(Task(row, no_fence, ignore_progress, unused, lambda direction: nullcontext()))
        assert world.instances.there[row.id].spec_digest.split()[0] == started
        assert asked == ([] if attempts else [image])

    run(world, main)
