"""A backend that accepts every call and answers none is named soon, delays nobody else, and loses nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from codehub.control.breaker import OBSERVED_WITHIN_S
from codehub.control.deps import ControllerSettings
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Workspace
from testing.codehub.control_world import World, run
from testing.codehub.workspaces import WORKSPACE_ID

NEIGHBOUR = WORKSPACE_ID[:-1] + "2"
IDLE_S = ControllerSettings().idle_interval_s
# Until the next resync, and as long as that waits for a backend that hangs.
NOTICED_S = IDLE_S + OBSERVED_WITHIN_S


def _runs(row: Workspace) -> bool:
    return row.phase is Phase.RUNNING and row.operation is Operation.NONE


def _last_error(world: World) -> str:
    return str(world.database.components.get("workspace_controller", {}).get("last_error"))


def test_a_hung_engine_is_named_in_health_and_metrics_at_the_next_resync_and_on_the_card_within_a_minute() -> None:
    world = World()

    async def main() -> None:
        world.put(instance_backend="local-docker")
        async with world.leading():
            await world.until(_runs)
            world.engine.hang()
            begun = world.clock.monotonic()
            await asyncio.sleep(NOTICED_S + 5)  # heartbeats are written every 5 s
            assert "local-docker does not answer since" in _last_error(world)
            assert "process does not answer" not in _last_error(world)
            assert b'codehub_coordinator_backend_up{backend="local-docker"} 0.0' in world.metrics.render()
            assert b'codehub_coordinator_backend_up{backend="process"} 1.0' in world.metrics.render()
            row = await world.until(lambda row: row.blocked is not None, NOTICED_S)
            assert world.clock.monotonic() - begun <= 60
            assert row.blocked is not None
            assert row.blocked.reason is ErrorReason.UNREACHABLE
            assert row.blocked.message.startswith("local-docker does not answer since ")

    run(world, main)


def test_what_a_hung_engine_runs_is_never_judged_absent_and_goes_on_when_it_answers() -> None:
    world = World()

    async def main() -> None:
        world.put(instance_backend="local-docker")
        async with world.leading():
            await world.until(_runs)
            before = world.engine.there[WORKSPACE_ID].identity
            world.engine.hang()
            world.homes.hang()
            for _ in range(60):
                await asyncio.sleep(60)
                row = world.database.rows[WORKSPACE_ID]
                assert (row.phase, row.operation, row.error_reason) == (Phase.RUNNING, Operation.NONE, None)
                assert not row.conditions.container_ready.is_false
                assert not row.conditions.volume_ready.is_false
            world.engine.resume()
            world.homes.resume()
            await world.until(lambda row: row.blocked is None and row.conditions.container_ready.is_true)
            assert world.engine.there[WORKSPACE_ID].identity == before, "it was not restarted"

    run(world, main)


def test_workspaces_of_other_backends_are_judged_while_an_engine_hangs() -> None:
    world = World()

    async def main() -> None:
        world.put(instance_backend="local-docker")
        world.put(NEIGHBOUR)
        async with world.leading():
            await world.until(_runs)
            await world.until(_runs, id_=NEIGHBOUR)
            world.engine.hang()
            world.database.cut_listeners()
            before = world.instances.there[NEIGHBOUR].identity
            # No hint tells of it: only the resync can find it.
            world.instances.there[NEIGHBOUR] = replace(
                world.instances.there[NEIGHBOUR], running=False, upstream=None, exit_reason="OOMKilled"
            )
            await asyncio.sleep(NOTICED_S + 1)
            assert world.instances.there[NEIGHBOUR].identity != before, "it was started again"

    run(world, main)


def test_an_archive_store_that_hangs_delays_no_judgement_and_is_named() -> None:
    world = World()

    async def main() -> None:
        world.put(desired_state=DesiredState.ARCHIVED)
        world.put(NEIGHBOUR)
        async with world.leading():
            await world.until(lambda row: row.phase is Phase.ARCHIVED)
            await world.until(_runs, id_=NEIGHBOUR)
            world.archives.hang()
            world.instances.there[NEIGHBOUR] = replace(
                world.instances.there[NEIGHBOUR], running=False, upstream=None, exit_reason="OOMKilled"
            )
            await asyncio.sleep(NOTICED_S + 5)
            assert _runs(world.database.rows[NEIGHBOUR])
            assert world.instances.there[NEIGHBOUR].running
            await world.until(lambda _: "archives does not answer since" in _last_error(world), 60)
            await asyncio.sleep(600)
            row = world.database.rows[WORKSPACE_ID]
            assert (row.phase, row.error_reason) == (Phase.ARCHIVED, None)
            world.archives.resume()
            await world.until(lambda row: row.conditions.archive_ready.is_true)

    run(world, main)
