"""Setup links: one connection to the `workspaced` of every running workspace, kept for as long as it runs.

```
 tick ── linkable workspaces ──► one task each: find the start ► bind it to its owner ► open the link
                                    ├ send what is to be set up, and again when it changes
                                    ├ answer its questions (a git credential, a signature, devcontainer.json, an image)
                                    └ keep how far its setup is
```

A workspace that cannot be linked is tried again; nothing else of the coordinator waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from codehub.control.dev_images import DevImages
from codehub.control.heartbeat import Heartbeat
from codehub.control.owner_pace import OwnerPace, question_units
from codehub.control.polling import next_pause_s
from codehub.domain.errors import CodeHubError, UpstreamUnavailable
from codehub.domain.setup import SetupState, SetupStep, StepState, parse_setup
from codehub.own_task import in_own_task
from codehub.ports.image_builds import BuildNews
from codehub.ports.instances import Instances, InstanceStatus
from codehub.ports.setup import Linkable, Links, LinkStream, Message, SetupDesk

_log = structlog.get_logger()

_TICK_S: Final = 1.0
_AGAIN_S: Final = 1.0  # after a link that ended
# How long a start waits for git and secrets. A workspace whose helper does not answer runs all the same.
_CONFIGURED_WITHIN_S: Final = 20.0
# A start that may not be linked, or whose helper is too old: looked at again rarely.
_REFUSED_S: Final = 15.0
# How often the progress of one workspace is written: a card does not show more.
_NOTE_EVERY_S: Final = 1.0
_QUESTIONS_AT_ONCE: Final = 8
_KEPT_NEWS: Final = 256 << 10

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
    reported: SetupState | None = None  # by its helper
    trouble: str = ""  # what the desk could not send, for its owner

    def state(self) -> SetupState | None:
        if self.reported is None or self.reported.error or not self.trouble:
            return self.reported
        return replace(self.reported, error=self.trouble)


class SetupLinks:
    def __init__(
        self,
        epoch: int,
        desk: SetupDesk,
        links: Links,
        instances: Mapping[str, Instances],
        heartbeat: Heartbeat,
        images: DevImages | None = None,
    ) -> None:
        self._epoch = epoch
        self._images = images
        self._desk = desk
        self._links = links
        self._instances = instances
        self._heartbeat = heartbeat
        self._pace = OwnerPace()
        self._linked: dict[str, _Linked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hint = asyncio.Event()
        self._news = asyncio.Event()  # set, and replaced, when a tick is over or a start is configured
        self._ticks = 0

    async def awaits_environment(self, owner_user_id: str) -> bool:
        """Whether an IDE of this owner waits for its environment before it begins."""
        return await self._desk.awaits_environment(owner_user_id)

    def started(self, workspace_id: str) -> None:
        """An instance was just started: link it now, since its IDE may wait."""
        self._hint.set()
        if (linked := self._linked.get(workspace_id)) is not None:
            linked.started.set()

    def user_setup_changed(self) -> None:
        """A user changed a secret or a credential: running workspaces get it now."""
        self._hint.set()

    async def configured(self, workspace_id: str, instance: str) -> None:
        """Wait until git and the secrets of a start are configured: a push must not fail right after a wake."""
        first = self._ticks
        try:
            async with asyncio.timeout(_CONFIGURED_WITHIN_S):
                while (linked := self._linked.get(workspace_id)) is None or linked.configured != instance:
                    if linked is None and self._ticks > first + 1:
                        return  # not linkable any more: it is to stop again
                    await self._news.wait()
        except TimeoutError:
            _log.warning("a workspace runs before its helper is linked", workspace_id=workspace_id)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._images is not None:
                group.create_task(self._images.run(), name="images")
            while True:
                self._hint.clear()  # before: a hint that comes during the tick is for the next one
                async with self._heartbeat.tick():
                    await self._tick(group)
                try:
                    async with asyncio.timeout(_TICK_S):
                        await self._hint.wait()
                except TimeoutError:
                    pass

    async def _tick(self, group: asyncio.TaskGroup) -> None:
        wanted = {each.workspace_id: each for each in await self._desk.linkable()}
        for workspace_id in [id_ for id_ in self._tasks if id_ not in wanted or self._tasks[id_].done()]:
            self._tasks.pop(workspace_id).cancel()
            self._linked.pop(workspace_id, None)
            if self._images is not None and workspace_id not in wanted:
                self._images.abandon(workspace_id)
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
        self._tell_waiting()

    def _configured(self, linked: _Linked, instance: str) -> None:
        linked.configured = instance
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _keep(self, linked: _Linked) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            own_pause_s = None
            linked.started.clear()
            try:
                own_pause_s = await in_own_task(self._link(linked))
            except* CodeHubError as errors:
                _log.debug("not linked", workspace_id=linked.workspace.workspace_id, error=str(errors.exceptions[0]))
            except* Exception as errors:  # noqa: BLE001 - one workspace must not take the coordinator's term with it
                _log.error("a setup link failed", workspace_id=linked.workspace.workspace_id, exc_info=errors)
            try:
                # Not wait_for, which in Python 3.11 loses a cancellation that comes together with the event.
                async with asyncio.timeout(own_pause_s or next_pause_s(loop.time() - began)):
                    await linked.started.wait()
                began = loop.time()
            except TimeoutError:
                pass

    async def _link(self, linked: _Linked) -> float | None:
        """One connection, until it ends; how long to wait before the next, or None while there is nothing to link yet."""
        workspace = linked.workspace
        backend = self._instances.get(workspace.instance_backend)
        status = await backend.status(workspace.workspace_id) if backend is not None else None
        if status is None or not status.running or status.workspaced is None:
            return None
        if not await self._desk.bind(self._epoch, workspace.workspace_id, status.identity, workspace.owner_user_id):
            await self._desk.note(self._epoch, workspace.workspace_id, _OTHER_OWNER)
            self._configured(linked, status.identity)
            return _REFUSED_S
        async with self._links.open(status.workspaced) as stream:
            if stream is None:
                self._configured(linked, status.identity)
                return _REFUSED_S
            await self._converse(linked, status, stream)
        return _AGAIN_S

    async def _converse(self, linked: _Linked, status: InstanceStatus, stream: LinkStream) -> None:
        notes: asyncio.Queue[SetupState] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._send_changes(linked, status.identity, stream, notes)),
                group.create_task(self._write_notes(linked.workspace.workspace_id, notes)),
            ]
            answering: set[asyncio.Task[None]] = set()
            await self._listen(linked, status, stream, notes, group, answering)
            for task in (*tasks, *answering):  # an image takes minutes, and the next link must not wait for it
                task.cancel()

    async def _send_changes(
        self, linked: _Linked, instance: str, stream: LinkStream, notes: asyncio.Queue[SetupState]
    ) -> None:
        while True:
            linked.changed.clear()
            workspace = linked.workspace
            message = await self._desk.message(workspace.workspace_id, workspace.owner_user_id)
            if message is not None:
                await stream.send(message)
                linked.trouble = str(message.get("trouble") or "")
                _put(notes, linked)
            self._configured(linked, instance)
            await linked.changed.wait()

    async def _write_notes(self, workspace_id: str, notes: asyncio.Queue[SetupState]) -> None:
        while True:
            await self._desk.note(self._epoch, workspace_id, await notes.get())
            await asyncio.sleep(_NOTE_EVERY_S)

    async def _listen(
        self,
        linked: _Linked,
        status: InstanceStatus,
        stream: LinkStream,
        notes: asyncio.Queue[SetupState],
        group: asyncio.TaskGroup,
        answering: set[asyncio.Task[None]],
    ) -> None:
        slots = asyncio.Semaphore(_QUESTIONS_AT_ONCE)
        linked.reported = None
        async for message in stream.messages():
            await self._pace.charge(linked.workspace.owner_user_id, question_units(message.get("text")))
            if message.get("event") == "setup":
                linked.reported = parse_setup(message.get("setup"))
                _put(notes, linked)
            elif isinstance(message.get("id"), int):
                await slots.acquire()  # one that asks faster than it is answered waits
                task = group.create_task(self._answer(linked.workspace, status, stream, message, slots))
                answering.add(task)
                task.add_done_callback(answering.discard)
        if (last := linked.state()) is not None:
            await self._desk.note(self._epoch, linked.workspace.workspace_id, last)

    async def _answer(
        self,
        workspace: Linkable,
        status: InstanceStatus,
        stream: LinkStream,
        question: Message,
        slots: asyncio.Semaphore,
    ) -> None:
        answer: dict[str, object] = {"answer": question["id"]}
        try:
            answer["value"] = await self._value(workspace, status, stream, question)
        except CodeHubError as error:
            answer["error"] = str(error)
        except Exception as error:  # noqa: BLE001 - one question must not take the link, and all others, with it
            _log.error("a question was not answered", workspace_id=workspace.workspace_id, exc_info=error)
            answer["error"] = "CodeHub cannot answer this"
            await asyncio.sleep(_AGAIN_S)  # a log of eight such questions a second at most
        finally:
            slots.release()
        try:
            await stream.send(answer)
        except UpstreamUnavailable:
            pass

    async def _value(
        self, workspace: Linkable, status: InstanceStatus, stream: LinkStream, question: Message
    ) -> Message:
        id_, owner, kind = workspace.workspace_id, workspace.owner_user_id, question.get("ask")
        value = await self._desk.answer(id_, status.identity, owner, question)
        if self._images is None or kind not in ("devcontainer", "image") or value.get("error"):
            return value
        if kind == "devcontainer":
            return await self._images.describe(id_, status, question, value)
        async with _News(stream) as news:
            return await self._images.prepare(id_, status, question, news.put)


def _put(notes: asyncio.Queue[SetupState], linked: _Linked) -> None:
    if (state := linked.state()) is not None:
        if notes.full():
            notes.get_nowait()  # the newest is what counts
        notes.put_nowait(state)


class _News:
    """What a build prints, sent in batches: a workspace that reads slowly gets the newest part."""

    def __init__(self, stream: LinkStream) -> None:
        self._stream = stream
        self._text = ""
        self._last = BuildNews()
        self._there = asyncio.Event()

    def put(self, news: BuildNews) -> None:
        self._text = (self._text + news.text)[-_KEPT_NEWS:]
        self._last = news
        self._there.set()

    async def __aenter__(self) -> _News:
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(UpstreamUnavailable):
            if self._text:
                await self._flush()

    async def _send(self) -> None:
        while True:
            await self._there.wait()
            await self._flush()
            await asyncio.sleep(_NOTE_EVERY_S)

    async def _flush(self) -> None:
        self._there.clear()
        text, self._text = self._text, ""
        progress = {"step": self._last.doing, "percent": self._last.percent}
        await self._stream.send({"event": "image", "output": text, "progress": progress})
