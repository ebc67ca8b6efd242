"""Live events: sends changes to every open stream of a user who may see them.

```
 bus ──hint──► dirty ids ─┐                        ┌► stream (pending frames, newest per workspace)
 poll ─version differs────┼► one loader ─ frames ──┼► stream
 a new stream ─ wanting ──┘   (rows, once a change) └► stream
```

One loader does all reads sequentially, so that no stream ever gets an older state after a newer one. Hints only reduce the
latency: a poll of row versions finds changes without a hint, and runs more often while the bus is down. No stream holds a
database connection, and the queue of a slow stream is bounded by the workspaces it may see.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog

from codehub.adapters.postgres import control_ttl, sessions, workspaces
from codehub.adapters.postgres.pool import Database
from codehub.domain.actions import Viewer
from codehub.domain.errors import BackendDown, CodeHubError, TooManyRequests, Transient
from codehub.domain.ids import is_id
from codehub.domain.model import WorkspaceWithOwner
from codehub.domain.ttl import Span
from codehub.own_task import in_own_task
from codehub.ports.bus import Bus
from codehub.services.principal import Clock, Ids, Principal

_log = structlog.get_logger()

# Renders a workspace for one user as JSON. The spans are gaps in which activity could not be observed.
Render: TypeAlias = Callable[[WorkspaceWithOwner, Viewer, Sequence[Span]], str]


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals in seconds. Only tests should shorten them."""

    tick_s: float = 5.0  # checks sessions; polls versions while the bus is down
    poll_s: float = 30.0  # polls versions while the bus is up
    retry_s: float = 1.0  # after a failure of the database or the bus
    probe_s: float = 20.0  # sends a message to ourselves through the bus, which detects a dead connection this soon
    heartbeat_s: float = 30.0
    send_s: float = 30.0  # a client that reads nothing for this long is dropped


def frame(event: str, data: str) -> bytes:
    return f"event: {event}\ndata: {data}\n\n".encode()


HEARTBEAT = frame("heartbeat", "{}")
# Per user. Each tab has one.
MOST_STREAMS = 1_000


@dataclass(eq=False, slots=True)
class Stream:
    """One client.

    `owner` selects whose workspaces it sees; None means all. `user_id` and `is_admin` describe the viewer.
    """

    owner: str | None
    bearer_id: str
    user_id: str = ""
    is_admin: bool = False
    _pending: dict[str, bytes] = field(default_factory=dict)
    _snapshot: bytes | None = None
    _begun: bool = False
    _over: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, timeout_s: float) -> bytes | None:
        """Return what to send: frames, a heartbeat after a silent `timeout_s`, or None if the stream has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return HEARTBEAT
        if self._over:
            return None
        self._changed.clear()
        frames = ([self._snapshot] if self._snapshot is not None else []) + list(self._pending.values())
        self._snapshot = None
        self._pending.clear()
        return b"".join(frames)

    def begin(self, snapshot: bytes) -> None:
        self._begun = True
        self._snapshot = snapshot
        self._pending.clear()
        self._changed.set()

    def offer(self, workspace_id: str, what: bytes) -> None:
        """Queue a frame, replacing an unsent frame of the same workspace."""
        if self._begun:
            self._pending.pop(workspace_id, None)
            self._pending[workspace_id] = what
            self._changed.set()

    def viewer(self, owner_user_id: str) -> Viewer:
        return Viewer(is_admin=self.is_admin, is_owner=self.user_id == owner_user_id)

    def end(self) -> None:
        self._over = True
        self._changed.set()


class EventBroadcaster:
    def __init__(
        self,
        database: Database,
        bus: Bus,
        *,
        prefix: str,
        render: Render,
        clock: Clock,
        ids: Ids,
        pace: Pace,
    ) -> None:
        self._database = database
        self._bus = bus
        self._prefix = prefix
        self._probe_channel = f"{prefix}probe:{ids()}"
        self._render = render
        self._clock = clock
        self.pace = pace
        self._streams: dict[str | None, set[Stream]] = {}
        self._wanting: set[Stream] = set()
        self._dirty: dict[str, None] = {}
        self._known: dict[str, tuple[str, str]] = {}  # id → (owner, version) last sent
        self._wake = asyncio.Event()
        self._received = asyncio.Event()
        self._connected = False
        self._stopped = False
        self.failures = 0

    @property
    def open_streams(self) -> int:
        return sum(len(streams) for streams in self._streams.values())

    @property
    def connected(self) -> bool:
        """Return whether hints arrive: our own message came back through the bus."""
        return self._connected

    def open(self, who: Principal, *, everybody: bool) -> Stream:
        """Open a stream that begins with a snapshot. Release it with `close`."""
        if everybody:
            who.must_be_admin()
        theirs = [*self._streams.get(who.user_id, ()), *self._streams.get(None, ())]
        if sum(1 for stream in theirs if stream.user_id == who.user_id) >= MOST_STREAMS:
            raise TooManyRequests(f"you have {MOST_STREAMS} open event streams: close one", 30)
        stream = Stream(None if everybody else who.user_id, who.bearer_id, who.user_id, who.is_admin)
        if self._stopped:
            stream.end()
        self._streams.setdefault(stream.owner, set()).add(stream)
        self._wanting.add(stream)
        self._wake.set()
        return stream

    def close(self, stream: Stream) -> None:
        self._wanting.discard(stream)
        streams = self._streams.get(stream.owner, set())
        streams.discard(stream)
        if not streams:
            self._streams.pop(stream.owner, None)
            if None not in self._streams:
                self._known = {id_: seen for id_, seen in self._known.items() if seen[0] in self._streams}

    def ended(self, bearer_id: str) -> None:
        """End the streams of a session or token that has ended."""
        for stream in self._all():
            if stream.bearer_id == bearer_id:
                stream.end()

    def stop(self) -> None:
        """End all current and future streams, because the process is shutting down."""
        self._stopped = True
        for stream in self._all():
            stream.end()

    def changed(self, workspace_id: str) -> None:
        """Handle a hint. Without streams, nothing is loaded."""
        if self._streams:
            self._dirty[workspace_id] = None
            self._wake.set()

    async def run(self) -> None:
        """Run until cancelled. Unexpected failures are logged, followed by a restart with new snapshots."""
        while True:
            await in_own_task(self._serve())
            self.failures += 1
            self._connected = False
            # Entries taken from the queues before the failure are lost, so every stream starts with a snapshot again.
            self._wanting = set(self._all())
            self._dirty = {}
            self._wake.set()
            await asyncio.sleep(self.pace.retry_s)

    async def _serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._load())
                group.create_task(self._watch())
                group.create_task(self._listen())
        except* Exception:  # noqa: BLE001 - every open dashboard depends on it
            _log.exception("live events failed and begin again")

    async def _load(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            wanting, self._wanting = self._wanting, set()
            dirty, self._dirty = self._dirty, {}
            try:
                if wanting:
                    await self._begin(wanting)
                    wanting = set()
                if dirty:
                    await self._tell(dirty)
            except (BackendDown, Transient) as error:
                _log.warning("live events wait for the database", error=str(error))
                self._wanting |= {stream for stream in wanting if stream in self._streams.get(stream.owner, ())}
                self._dirty = {**dirty, **self._dirty}
                self._wake.set()
                await asyncio.sleep(self.pace.retry_s)

    async def _begin(self, wanting: set[Stream]) -> None:
        for owner in {stream.owner for stream in wanting}:
            async with self._database.transaction() as tx:
                found = await workspaces.all_of(tx, owner)
                gaps = (await control_ttl.read_coverage(tx)).gaps
            for owned in found:
                self._note(owned)
            # All tabs of one user get the same bytes.
            snapshots: dict[tuple[str, bool], bytes] = {}
            for stream in wanting:
                if stream.owner == owner:
                    who = (stream.user_id, stream.is_admin)
                    if who not in snapshots:
                        snapshots[who] = self._snapshot(found, stream, gaps)
                    stream.begin(snapshots[who])

    async def _tell(self, dirty: Iterable[str]) -> None:
        async with self._database.transaction() as tx:
            found = await workspaces.many(tx, list(dirty))
            gaps = (await control_ttl.read_coverage(tx)).gaps
        for workspace_id in dirty:
            owned = found.get(workspace_id)
            owner = owned.workspace.owner_user_id if owned else self._known.get(workspace_id, ("", ""))[0]
            streams = self._streams.get(owner, set()) | self._streams.get(None, set())
            if not streams:
                continue
            if owned is None or owned.workspace.deleted_at is not None:
                self._known.pop(workspace_id, None)
                gone = frame("workspace_deleted", json.dumps({"id": workspace_id}))
                for stream in streams:
                    stream.offer(workspace_id, gone)
            else:
                self._note(owned)
                frames = {viewer: self._updated(owned, viewer, gaps) for viewer in {s.viewer(owner) for s in streams}}
                for stream in streams:
                    stream.offer(workspace_id, frames[stream.viewer(owner)])

    def _snapshot(self, found: Sequence[WorkspaceWithOwner], stream: Stream, gaps: Sequence[Span]) -> bytes:
        seen = (self._render(owned, stream.viewer(owned.workspace.owner_user_id), gaps) for owned in found)
        return frame("snapshot", f'{{"items":[{",".join(seen)}]}}')

    def _updated(self, owned: WorkspaceWithOwner, viewer: Viewer, gaps: Sequence[Span]) -> bytes:
        return frame("workspace_updated", self._render(owned, viewer, gaps))

    def _note(self, owned: WorkspaceWithOwner) -> None:
        self._known[owned.workspace.id] = (owned.workspace.owner_user_id, owned.version)

    async def _watch(self) -> None:
        """End streams whose session or role has ended, and poll for changes that hints may have missed."""
        since_poll = 0.0
        while True:
            await asyncio.sleep(self.pace.tick_s)
            since_poll += self.pace.tick_s
            try:
                await self._end_stale()
                if not self._connected or since_poll >= self.pace.poll_s:
                    since_poll = 0.0
                    await self._poll()
            except (BackendDown, Transient) as error:
                _log.warning("live events cannot look at the database", error=str(error))

    async def _end_stale(self) -> None:
        bearers = {stream.bearer_id for stream in self._all()}
        if not bearers:
            return
        async with self._database.transaction() as tx:
            live = await sessions.still_live(tx, bearers, self._clock())
        for stream in self._all():
            # An administrator's stream may show the workspaces of others, and shows more of them.
            if stream.bearer_id in bearers and (
                stream.bearer_id not in live or (stream.is_admin and not live[stream.bearer_id])
            ):
                stream.end()

    async def _poll(self) -> None:
        if not self._streams:
            return
        owners = None if None in self._streams else [owner for owner in self._streams if owner is not None]
        async with self._database.transaction() as tx:
            there = await workspaces.versions(tx, owners)
        for workspace_id in {id_ for id_, seen in there.items() if self._known.get(id_) != seen} | (
            self._known.keys() - there.keys()
        ):
            self.changed(workspace_id)

    async def _listen(self) -> None:
        while True:
            await in_own_task(self._follow_bus())
            self._connected = False
            await asyncio.sleep(self.pace.retry_s)

    async def _follow_bus(self) -> None:
        """Receive hints until the bus fails."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._receive())
                group.create_task(self._probe())
        except* (BackendDown, _Silent) as errors:
            if self._connected:
                _log.warning("live events go on without the bus", error=str(errors.exceptions[0]))

    async def _receive(self) -> None:
        async for channel, payload in self._bus.subscribe(f"{self._prefix}*"):
            if channel == self._probe_channel:
                self._received.set()
            else:
                for workspace_id in _ids_in(payload):
                    self.changed(workspace_id)
        raise _Silent("the subscription ended")

    async def _probe(self) -> None:
        """Send a message to ourselves: receiving it means subscribed. A poll finds earlier changes."""
        while True:
            self._received.clear()
            await self._say()
            if not self._connected:
                self._connected = True
                try:
                    await self._poll()
                except (BackendDown, Transient) as error:
                    _log.warning("live events cannot look at the database", error=str(error))
            await asyncio.sleep(self.pace.probe_s)

    async def _say(self) -> None:
        for _ in range(10):
            await self._bus.publish(self._probe_channel, "{}")
            try:
                async with asyncio.timeout(self.pace.retry_s):
                    await self._received.wait()
                return
            except TimeoutError:
                continue
        raise _Silent("the bus takes messages and gives none back")

    def _all(self) -> list[Stream]:
        return [stream for streams in self._streams.values() for stream in streams]


class _Silent(CodeHubError):
    """The subscription is open but delivers nothing."""


def _ids_in(payload: str) -> list[str]:
    """A hint is `{"id": …}` or the bare id; anything else is ignored."""
    try:
        value = json.loads(payload)
    except ValueError:
        value = payload
    if isinstance(value, dict):
        value = value.get("id")
    return [value] if isinstance(value, str) and is_id(value) else []
