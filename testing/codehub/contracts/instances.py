"""The contract of every instance backend."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

import pytest

from codehub.domain.errors import FenceLost
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import ABSENT, Instances, InstanceSpec, InstanceStatus
from testing.codehub.contracts.archives import lost_after

TIMEOUT_S = 240.0  # a kubelet on a busy machine takes minutes
T = TypeVar("T")


class InstancesWorld(Protocol):
    @property
    def instances(self) -> Instances: ...

    async def spec(self, workspace_id: str, variant: str = "a") -> InstanceSpec:
        """Return a spec whose home exists.

        Variants differ in their spec. The instance writes `hello from {id}` to its output.
        """
        ...

    async def crash(self, workspace_id: str) -> None:
        """Make the instance fail without the backend's knowledge."""
        ...


# Of this process alone: the end of an instance is the end of every process of its uid, which follows from the id, and
# other tests may run on this machine.
_RUN = secrets.token_hex(2)


def wid(number: int = 1) -> str:
    return f"0190a000-{_RUN}-7000-8000-{number:012d}"


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await holds():
            await asyncio.sleep(0.02)
        return
    raise AssertionError(what)


async def healthy(world: InstancesWorld, spec: InstanceSpec) -> InstanceStatus:
    """Return the status once the instance answers.

    If it ended first (its port was taken), start it again, as the controller does.
    """

    async def answers() -> bool:
        if not (await world.instances.status(spec.workspace_id)).running:
            await world.instances.start(spec, ignore_progress, no_fence)
        return await world.instances.probe(spec.workspace_id, spec.profile)

    await until(answers, "it answers its health check")
    return await world.instances.status(spec.workspace_id)


async def started(world: InstancesWorld, number: int = 1, variant: str = "a") -> InstanceStatus:
    spec = await world.spec(wid(number), variant)
    await world.instances.start(spec, ignore_progress, no_fence)
    return await healthy(world, spec)


class InstancesContract:
    async def test_what_was_never_started_is_absent(self, world: InstancesWorld) -> None:
        await world.instances.ping()
        assert await world.instances.status(wid()) == ABSENT
        assert await world.instances.resolve_upstream(wid()) is None
        assert await world.instances.list_all() == {}
        spec = await world.spec(wid())
        assert not await world.instances.probe(wid(), spec.profile)
        assert await world.instances.usage(wid()) is None

    async def test_a_started_instance_runs_answers_and_is_listed(self, world: InstancesWorld) -> None:
        status = await started(world)
        assert status.exists
        assert status.running
        assert status.identity
        assert status.upstream is not None
        assert status.upstream.identity == status.identity
        assert status.upstream.socket_path or (status.upstream.host and status.upstream.port)
        assert await world.instances.resolve_upstream(wid()) == status.upstream
        assert await world.instances.list_all() == {wid(): status}

    async def test_starting_what_runs_changes_nothing(self, world: InstancesWorld) -> None:
        before = await started(world)
        await world.instances.start(await world.spec(wid()), ignore_progress, no_fence)
        assert await world.instances.status(wid()) == before

    async def test_another_spec_or_replace_creates_it_again(self, world: InstancesWorld) -> None:
        first = await started(world)
        second = await started(world, variant="b")
        assert second.running
        assert second.identity != first.identity
        assert second.spec_digest != first.spec_digest
        spec = await world.spec(wid(), "b")
        await world.instances.start(spec, ignore_progress, no_fence, replace=True)
        third = await healthy(world, spec)
        assert third.identity != second.identity
        assert third.spec_digest == second.spec_digest

    async def test_a_stopped_instance_starts_again_as_another_identity(self, world: InstancesWorld) -> None:
        first = await started(world)
        await world.instances.stop(wid(), no_fence)
        await world.instances.stop(wid(), no_fence)
        stopped = await world.instances.status(wid())
        assert not stopped.running
        assert stopped.upstream is None
        assert await world.instances.resolve_upstream(wid()) is None
        again = await started(world)
        assert again.running
        assert again.identity != first.identity

    async def test_deleting_leaves_nothing_and_absent_is_success(self, world: InstancesWorld) -> None:
        await started(world)
        await world.instances.delete(wid(), no_fence)
        assert await world.instances.status(wid()) == ABSENT
        await world.instances.delete(wid(), no_fence)
        await world.instances.stop(wid(), no_fence)
        assert await world.instances.list_all() == {}

    async def test_a_lost_fence_changes_nothing(self, world: InstancesWorld) -> None:
        spec = await world.spec(wid())
        with pytest.raises(FenceLost):
            await world.instances.start(spec, ignore_progress, lost_after(0))
        assert not (await world.instances.status(wid())).running
        before = await started(world)
        for refused in (world.instances.stop(wid(), lost_after(0)), world.instances.delete(wid(), lost_after(0))):
            with pytest.raises(FenceLost):
                await refused
        assert await world.instances.status(wid()) == before

    async def test_a_crash_is_hinted_and_its_reason_reported(self, world: InstancesWorld) -> None:
        await started(world)
        async with aclosing(_opened(world.instances.watch())) as hints:
            heard = asyncio.create_task(_hears(hints, wid()))

            async def reported() -> bool:
                status = await world.instances.status(wid())
                return not status.running and status.exit_reason is not None

            async with asyncio.timeout(TIMEOUT_S):
                # The stream may open after a crash: single hints may be lost, but not all.
                while True:
                    await world.crash(wid())
                    await until(reported, "the crash is seen")
                    if (await asyncio.wait([heard], timeout=2))[0]:
                        break
                    await started(world)
            await heard
        assert not await world.instances.probe(wid(), (await world.spec(wid())).profile)
        assert (await started(world)).running

    async def test_output_is_kept_and_followed(self, world: InstancesWorld) -> None:
        await started(world)
        greeting = f"hello from {wid()}".encode()

        async def written() -> bool:
            parts = [part async for part in world.instances.logs(wid(), follow=False)]
            return greeting in b"".join(parts)

        await until(written, "its output is there")
        assert [part async for part in world.instances.logs(wid(2), follow=False)] == []
        seen = b""
        async with asyncio.timeout(TIMEOUT_S), aclosing(_opened(world.instances.logs(wid(), follow=True))) as follow:
            async for part in follow:
                seen += part
                if greeting in seen:
                    break
        assert greeting in seen

    async def test_instances_do_not_disturb_each_other(self, world: InstancesWorld) -> None:
        one, two = await asyncio.gather(started(world, 1), started(world, 2))
        assert one.identity != two.identity
        await world.instances.delete(wid(1), no_fence)
        assert await world.instances.list_all() == {wid(2): two}


async def _opened(stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Wrap a stream in a generator that closes it."""
    try:
        async for item in stream:
            yield item
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def _hears(hints: AsyncIterator[str], workspace_id: str) -> None:
    async for hint in hints:
        if hint == workspace_id:
            return
