"""Twins of the setup links: a helper in every instance, and the desk that knows whose secrets it may receive.

Contract: what a workspace receives belongs to its owner of that moment, and to nobody who owned it before or after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from codehub.domain.errors import UpstreamUnavailable
from codehub.domain.model import DesiredState, Operation, Phase
from codehub.domain.setup import SetupState
from codehub.ports.instances import Upstream
from codehub.ports.setup import Linkable, LinkStream, Message
from testing.codehub.simulation.world import World

_POLL_S: Final = 0.5


class SimDesk:
    """Implements ports.setup.SetupDesk, as the SQL in adapters/postgres/setup_links.py does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bound: dict[str, tuple[str, str]] = {}  # workspace → instance, owner

    async def linkable(self) -> Sequence[Linkable]:
        return [
            Linkable(row.id, row.instance_backend, row.owner_user_id, (0, 0))
            for row in self._world.database.rows.values()
            if row.deleted_at is None
            and row.desired_state is DesiredState.RUNNING
            and (row.phase is Phase.RUNNING or row.operation is Operation.STARTING)
        ]

    async def bind(self, epoch: int, workspace_id: str, instance: str, owner_user_id: str) -> bool:
        self._world.database.must_lead(epoch)
        bound = self._bound.get(workspace_id)
        known = bound is not None and bound[0] == instance and bound[1] != owner_user_id
        if known or self._world.database.rows[workspace_id].owner_user_id != owner_user_id:
            return False
        self._bound[workspace_id] = (instance, owner_user_id)
        return True

    async def message(self, workspace_id: str, owner_user_id: str) -> Message | None:
        return {"secrets of": owner_user_id}

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> Message:
        if self._bound.get(workspace_id) != (instance, owner_user_id):
            return {}
        return {"secrets of": owner_user_id}

    async def note(self, epoch: int, workspace_id: str, state: SetupState) -> None:
        self._world.database.must_lead(epoch)

    async def awaits_environment(self, owner_user_id: str) -> bool:
        return True


class SimLinks:
    """Implements ports.setup.Links: the helper asks once, and talks for as long as its instance runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    @asynccontextmanager
    async def open(self, upstream: Upstream) -> AsyncIterator[LinkStream | None]:
        yield _SimStream(self._world, upstream.identity)


class _SimStream:
    def __init__(self, world: World, instance: str) -> None:
        self._world = world
        self._instance = instance

    def _workspace(self) -> str:
        there = self._world.instances.there.items()
        found = next((id_ for id_, one in there if one.identity == self._instance and one.running), None)
        if found is None:
            raise UpstreamUnavailable("the helper is gone")
        return found

    async def send(self, message: Message) -> None:
        workspace_id = self._workspace()
        secrets = message.get("value", message)
        whose = secrets.get("secrets of") if isinstance(secrets, dict) else None
        if whose is not None:
            self._world.receive(workspace_id, self._instance, str(whose))

    async def messages(self) -> AsyncIterator[Message]:
        yield {"id": 1, "ask": "credential"}
        while True:
            try:
                self._workspace()
            except UpstreamUnavailable:
                return
            await asyncio.sleep(_POLL_S)
