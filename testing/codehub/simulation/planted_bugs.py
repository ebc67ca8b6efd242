"""Bugs that are planted in the control plane while one seed runs; the invariants must find each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from codehub.control import act, gc_runner, ttl_runner
from codehub.control.observe import home_key
from codehub.domain import observed
from codehub.domain.errors import CodeHubError
from codehub.domain.model import HomeCtx, Workspace
from codehub.ports.instances import ABSENT, InstanceStatus


@contextmanager
def planted(bugs: Collection[str]) -> Iterator[None]:
    """Plant the bugs that are code while one seed runs."""
    with ExitStack() as stack:
        if "volume-before-key" in bugs:
            stack.enter_context(_instead(act.Actor, "_archive_and_remove", _volume_before_key))
        if "gc-without-grace" in bugs:
            stack.enter_context(_instead(gc_runner, "is_due", lambda *_: True))
        if "marker-ignored" in bugs:
            stack.enter_context(
                _instead(observed, "_is_made_from_what_is_recorded", lambda row, ctx: ctx is not None)
            )
        if "error-is-idle" in bugs:
            stack.enter_context(_instead(ttl_runner.TtlRunner, "_status", _error_is_idle))
        yield


async def _error_is_idle(self: Any, workspace: Workspace) -> InstanceStatus:
    """An engine that answers with an error is taken for one without the instance."""
    try:
        return await self._instances[workspace.instance_backend].status(workspace.id)  # type: ignore[no-any-return]
    except CodeHubError:
        return ABSENT


@contextmanager
def _instead(owner: Any, name: str, bug: Any) -> Iterator[None]:
    right = getattr(owner, name)
    setattr(owner, name, bug)
    try:
        yield
    finally:
        setattr(owner, name, right)


async def _volume_before_key(self: Any, task: Any, backends: Any, ctx: HomeCtx, *, current: bool) -> None:
    """INV-8 in the wrong order: the volume is removed before its archive's key is committed."""
    row, home = task.workspace, home_key(task.workspace)
    homes = self._backends.homes[row.storage_backend]
    receipt = await homes.archive(home, ctx, row.archive_op_id, task.report, task.fence)
    await homes.deprovision(home, ctx, task.fence)
    await task.record(receipt, current)
