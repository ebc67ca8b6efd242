"""Setup links: one connection to the `workspaced` of every running workspace, kept for as long as it runs.

```
 tick ── linkable workspaces ──► one task each: find the start ► bind it to its owner ► open the link
                                    ├ send what is to be set up, and again when it changes
                                    ├ answer its questions (a git credential, a signature, devcontainer.json)
                                    └ keep how far its setup is
```

A workspace that cannot be linked is tried again; nothing else of the coordinator waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from codehub.control.heartbeat import Heartbeat
from codehub.domain.errors import CodeHubError, UpstreamUnavailable
from codehub.domain.setup import SetupState, SetupStep, StepState, parse_setup
from codehub.ports.instances import Instances
from codehub.ports.setup import Linkable, Links, LinkStream, Message, SetupDesk

_log = structlog.get_logger()

_TICK_S: Final = 1.0
# A helper answers some 100 ms after its instance was started; later attempts are less frequent.
_FIRST_AGAIN_S: Final = 0.05
_AGAIN_S: Final = 1.0
# How long a start waits for git and secrets. A workspace whose helper does not answer runs all the same.
_CONFIGURED_WITHIN_S: Final = 20.0
# A start that may not be linked, or whose helper is too old: looked at again rarely.
_REFUSED_S: Final = 15.0
# How often the progress of one workspace is written: a card does not show more.
_NOTE_EVERY_S: Final = 1.0
_QUESTIONS_AT_ONCE: Final = 8

_OTHER_OWNER = SetupState(
    steps=(
        SetupStep(
            "owner",
            "Your secrets and credentials",
            StepState.FAILED,
            message="This start began under another owner. Stop and start the workspace to use your own.",
        ),
    )
)


@dataclass(slots=True)
class _Linked:
    """What one task goes by: the newest version, and an event for each newer one."""

    workspace: Linkable
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    # The instance that was sent its configuration, or that may not have any.
    configured: str = ""


class SetupLinks:
    def __init__(
        self, desk: SetupDesk, links: Links, instances: Mapping[str, Instances], heartbeat: Heartbeat
    ) -> None:
        self._desk = desk
        self._links = links
        self._instances = instances
        self._heartbeat = heartbeat
        self._linked: dict[str, _Linked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hint = asyncio.Event()
        self._ticks = 0

    async def awaits_environment(self, owner_user_id: str) -> bool:
        """Whether an IDE of this owner waits for its environment before it begins."""
        return await self._desk.awaits_environment(owner_user_id)

    def started(self, workspace_id: str) -> None:
        """An instance was just started: link it now, since its IDE may wait."""
        self._hint.set()
        if (linked := self._linked.get(workspace_id)) is not None:
            linked.started.set()

    async def configured(self, workspace_id: str, instance: str) -> None:
        """Wait until git and the secrets of a start are configured: a push must not fail right after a wake."""
        first = self._ticks
        try:
            async with asyncio.timeout(_CONFIGURED_WITHIN_S):
                while (linked := self._linked.get(workspace_id)) is None or linked.configured != instance:
                    if linked is None and self._ticks > first + 1:
                        return  # not linkable any more: it is to stop again
                    await asyncio.sleep(_FIRST_AGAIN_S)
        except TimeoutError:
            _log.warning("a workspace runs before its helper is linked", workspace_id=workspace_id)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                async with self._heartbeat.tick():
                    await self._tick(group)
                self._hint.clear()
                try:
                    await asyncio.wait_for(self._hint.wait(), _TICK_S)
                except TimeoutError:
                    pass

    async def _tick(self, group: asyncio.TaskGroup) -> None:
        wanted = {each.workspace_id: each for each in await self._desk.linkable()}
        for workspace_id in [id_ for id_ in self._tasks if id_ not in wanted or self._tasks[id_].done()]:
            self._tasks.pop(workspace_id).cancel()
            self._linked.pop(workspace_id, None)
        for workspace_id, found in wanted.items():
            known = self._linked.get(workspace_id)
            if known is not None and known.workspace.owner_user_id != found.owner_user_id:
                self._tasks.pop(workspace_id).cancel()
                known = None
            if known is None:
                known = self._linked[workspace_id] = _Linked(found)
                self._tasks[workspace_id] = group.create_task(self._keep(known), name=f"link {workspace_id}")
            elif known.workspace.version != found.version:
                known.workspace = found
                known.changed.set()
        self._ticks += 1

    async def _keep(self, linked: _Linked) -> None:
        again_s = _FIRST_AGAIN_S
        while True:
            pause_s, again_s = again_s, min(_AGAIN_S, again_s * 2)
            linked.started.clear()
            try:
                pause_s = await self._link(linked) or pause_s
            except* CodeHubError as errors:
                _log.debug("not linked", workspace_id=linked.workspace.workspace_id, error=str(errors.exceptions[0]))
            except* Exception as errors:  # noqa: BLE001 - one workspace must not take the coordinator's term with it
                _log.error("a setup link failed", workspace_id=linked.workspace.workspace_id, exc_info=errors)
            try:
                await asyncio.wait_for(linked.started.wait(), pause_s)
                again_s = _FIRST_AGAIN_S
            except TimeoutError:
                pass

    async def _link(self, linked: _Linked) -> float | None:
        """One connection, until it ends; how long to wait before the next, or None while there is nothing to link yet."""
        workspace = linked.workspace
        backend = self._instances.get(workspace.instance_backend)
        status = await backend.status(workspace.workspace_id) if backend is not None else None
        if status is None or not status.running or status.workspaced is None:
            return None
        if not await self._desk.bind(workspace.workspace_id, status.identity, workspace.owner_user_id):
            await self._desk.note(workspace.workspace_id, _OTHER_OWNER)
            linked.configured = status.identity
            return _REFUSED_S
        async with self._links.open(status.workspaced) as stream:
            if stream is None:
                linked.configured = status.identity
                return _REFUSED_S
            await self._converse(linked, status.identity, stream)
        return _AGAIN_S

    async def _converse(self, linked: _Linked, instance: str, stream: LinkStream) -> None:
        notes: asyncio.Queue[SetupState] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._send_changes(linked, instance, stream)),
                group.create_task(self._write_notes(linked.workspace.workspace_id, notes)),
            ]
            await self._listen(linked, instance, stream, notes, group)
            for task in tasks:
                task.cancel()

    async def _send_changes(self, linked: _Linked, instance: str, stream: LinkStream) -> None:
        while True:
            linked.changed.clear()
            workspace = linked.workspace
            message = await self._desk.message(workspace.workspace_id, workspace.owner_user_id)
            if message is not None:
                await stream.send(message)
            linked.configured = instance
            await linked.changed.wait()

    async def _write_notes(self, workspace_id: str, notes: asyncio.Queue[SetupState]) -> None:
        while True:
            await self._desk.note(workspace_id, await notes.get())
            await asyncio.sleep(_NOTE_EVERY_S)

    async def _listen(
        self,
        linked: _Linked,
        instance: str,
        stream: LinkStream,
        notes: asyncio.Queue[SetupState],
        group: asyncio.TaskGroup,
    ) -> None:
        gate = asyncio.Semaphore(_QUESTIONS_AT_ONCE)
        last: SetupState | None = None
        async for message in stream.messages():
            if message.get("event") == "setup":
                last = parse_setup(message.get("setup"))
                if notes.full():
                    notes.get_nowait()  # the newest is what counts
                notes.put_nowait(last)
            elif isinstance(message.get("id"), int):
                await gate.acquire()  # one that asks faster than it is answered waits
                group.create_task(self._answer(linked.workspace, instance, stream, message, gate))
        if last is not None:
            await self._desk.note(linked.workspace.workspace_id, last)

    async def _answer(
        self, workspace: Linkable, instance: str, stream: LinkStream, question: Message, gate: asyncio.Semaphore
    ) -> None:
        answer: dict[str, object] = {"answer": question["id"]}
        try:
            value = await self._desk.answer(workspace.workspace_id, instance, workspace.owner_user_id, question)
            answer["value"] = value
        except CodeHubError as error:
            answer["error"] = str(error)
        finally:
            gate.release()
        try:
            await stream.send(answer)
        except UpstreamUnavailable:
            pass
