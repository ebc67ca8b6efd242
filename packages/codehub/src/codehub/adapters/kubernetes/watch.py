"""One list and one watch of one kind, kept as a table in memory (an informer).

The watch resumes by resourceVersion. Only a version that the server has forgotten (410) or never had costs a new list.
Errors are retried forever, with a backoff that resets on success. While the server is unreachable the table is not trusted:
`objects` raises BackendDown, so an old observation is never taken for the current state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from codehub.adapters.kubernetes.client import ApiClient, lines
from codehub.adapters.kubernetes.errors import Expired, Refusal, to_error
from codehub.adapters.kubernetes.objects import Meta
from codehub.domain.errors import BackendDown, CodeHubError

_log = structlog.get_logger()

# The server ends a watch after this long. It is resumed at once, without a list.
_WATCH_S: Final = 80
# A connection that is silent for longer is dead. Bookmarks are no sign of life: 1.20 sends them only before a watch ends,
# and no release sends them for a kind of which nothing has changed since the server started.
_SILENCE_S: Final = 100.0
# A watch that lasted this long worked, even if nothing changed meanwhile: proxies cut quiet connections.
_STEADY_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
# Number of remembered deletions, so that a late answer to our own write cannot bring a deleted object back.
_TOMBSTONES: Final = 4096
# Number of hints that a slow listener may accumulate. Beyond it, they become one hint to check everything.
_MOST_HINTS: Final = 10_000


class HasMeta(Protocol):
    @property
    def meta(self) -> Meta: ...


T = TypeVar("T", bound=HasMeta)
Decode = Callable[[Mapping[str, Any]], T]


class Informer(Generic[T]):
    """The table of one kind in one namespace, by label selector. Starts on first use; `close` ends it."""

    def __init__(
        self, client: ApiClient, path: str, decode: Decode[T], selector: str, random: Callable[[], float]
    ) -> None:
        self._client = client
        self._path = path
        self._decode = decode
        self._selector = selector
        self._random = random
        self._task: asyncio.Task[None] | None = None
        self._table: dict[str, T] = {}  # by uid
        self._by_workspace: dict[str, dict[str, T]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._synced = asyncio.Event()
        self._changed = asyncio.Condition()
        self._error: CodeHubError | None = None
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._version = ""
        self._failures = 0  # since a connection last worked
        self._expirations = 0  # likewise
        self._silences = 0  # watches in a row that sent nothing until they ended, not even a bookmark
        self.lists = 0  # number of full lists; steady state adds none
        self.events = 0

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def objects(self) -> Mapping[str, T]:
        """Return all objects by uid. Raises BackendDown while the server does not answer."""
        await self._ready()
        return self._table

    async def of(self, workspace_id: str) -> list[T]:
        """Return one workspace's objects, oldest first."""
        await self._ready()
        return self.known_of(workspace_id)

    async def workspaces(self) -> Mapping[str, list[T]]:
        await self._ready()
        return {workspace_id: self.known_of(workspace_id) for workspace_id in self._by_workspace}

    async def wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition on the table holds, checked after each change. Return False on timeout.

        Raises BackendDown as soon as the table cannot be trusted.
        """
        await self._ready()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                while not holds():
                    await self._changed.wait()
                    if self._error is not None:
                        raise self._error
                return True
        return False

    def known_of(self, workspace_id: str) -> list[T]:
        """Return one workspace's objects, oldest first, trusted or not. For `wait_until`."""
        found = self._by_workspace.get(workspace_id, {}).values()
        return sorted(found, key=lambda one: (one.meta.created, one.meta.uid))

    def get(self, uid: str) -> T | None:
        """Return the object in the table, trusted or not."""
        return self._table.get(uid)

    async def apply(self, item: Mapping[str, Any]) -> T:
        """Add the server's answer to our own write, so that we see it at once."""
        found = self._decode(item)
        if self._task is not None and found.meta.uid not in self._gone and self._is_newer(found.meta):
            await self._put(found)
        return found

    async def forget(self, uid: str) -> None:
        """Remove an object that the server reported as gone."""
        await self._drop(uid)

    async def changes(self) -> AsyncIterator[str]:
        """Yield ids of workspaces whose objects changed, as hints. Raises BackendDown when the connection is lost."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_MOST_HINTS)
        self._listeners.add(queue)
        try:
            await self._ready()
            while True:
                hint = await queue.get()
                if hint is None:
                    raise self._error or BackendDown("too many changes at once: a full resync is needed")
                yield hint
        finally:
            self._listeners.discard(queue)

    async def _ready(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._path}")
        if self._error is None:
            await self._synced.wait()
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                    self._failures = 0
                await self._watch()
                self._failures = 0
            except Expired as error:
                self._version = ""  # our version is too old: list again
                self._expirations += 1
                if self._expirations > 1:
                    # Even the version of a new list is too old: lists without a pause would be load without an end.
                    self._failures = self._expirations
                    await self._fail(BackendDown(f"the Kubernetes API server forgets faster than it lists: {error}"))
            except CodeHubError as error:
                self._failures += 1
                await self._fail(error if isinstance(error, BackendDown) else BackendDown(str(error)))
            except Exception as error:  # noqa: BLE001 - a bug of ours must not end the watch for good
                _log.exception("a watch failed unexpectedly", path=self._path)
                self._failures += 1
                self._version = ""
                await self._fail(BackendDown(f"the watch of {self._path} failed: {error}"))

    async def _fail(self, error: BackendDown) -> None:
        """Record a failure. A connection that ends is resumed at once and counts only if it cannot be resumed."""
        failures = self._failures
        if failures > 1 or not self._version:
            if self._error is None:
                _log.warning("a watch is interrupted", path=self._path, error=str(error))
            self._error = error
            self._synced.set()
            await self._announce(None)
        if failures > 1:
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures, 12))
            await asyncio.sleep(pause_s * (0.5 + self._random() / 2))

    async def _list(self) -> None:
        items, version = await self._client.list_all(self._path, {"labelSelector": self._selector})
        self.lists += 1
        if not items:
            await self._client.check_namespace()
        table = {one.meta.uid: one for one in map(self._decode, items)}
        touched = {
            one.meta.workspace_id
            for uid in table.keys() | self._table.keys()
            if (one := table.get(uid) or self._table[uid]) and table.get(uid) != self._table.get(uid)
        }
        self._table = table
        self._by_workspace = {}
        for one in table.values():
            self._by_workspace.setdefault(one.meta.workspace_id, {})[one.meta.uid] = one
        self._version = version
        await self._good()
        for workspace_id in touched:
            await self._announce(workspace_id)

    async def _good(self) -> None:
        if self._error is not None:
            _log.info("watch resumed", path=self._path)
        self._error = None
        self._synced.set()
        async with self._changed:
            self._changed.notify_all()

    async def _watch(self) -> None:
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": self._selector,
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_S),
        }
        async with self._client.stream(self._path, params, read_timeout_s=_SILENCE_S) as pieces:
            await self._good()
            connected, is_silent = asyncio.get_running_loop().time(), True
            try:
                async for line in lines(pieces):
                    await self._event(json.loads(line))
                    self._failures = self._expirations = self._silences = 0
                    is_silent = False
            finally:
                lasted = asyncio.get_running_loop().time() - connected
                if lasted >= _STEADY_S:
                    self._failures = self._expirations = 0
                if is_silent and lasted >= _WATCH_S:
                    self._silences += 1
        if self._silences > 1:
            await self._check_version()

    async def _check_version(self) -> None:
        """Start over with a list if our version lies in the server's future: it waits for it and says nothing meanwhile.

        That is so after its etcd was restored from a backup. Otherwise there was nothing to say, and no list is needed.
        """
        page = await self._client.list_page(self._path, {"labelSelector": self._selector, "limit": "1"})
        current = str((page.get("metadata") or {}).get("resourceVersion") or "")
        if current.isdigit() and self._version.isdigit() and int(current) < int(self._version):
            self._version = ""
        self._silences = 0

    async def _event(self, event: Mapping[str, Any]) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise to_error(
                Refusal(int(item.get("code") or 500), str(item.get("reason")), str(item.get("message"))), "watch"
            )
        version = (item.get("metadata") or {}).get("resourceVersion")
        if kind == "BOOKMARK":
            self._version = str(version or self._version)
            return
        self.events += 1
        found = self._decode(item)
        if kind == "DELETED":
            await self._drop(found.meta.uid)
        elif kind in ("ADDED", "MODIFIED") and self._is_newer(found.meta):
            await self._put(found)
        self._version = str(version or self._version)

    def _is_newer(self, meta: Meta) -> bool:
        """Return whether this state is later than the table's.

        Our own write may have been added before its event arrived.
        """
        known = self._table.get(meta.uid)
        if known is None:
            return True
        old, new = known.meta.resource_version, meta.resource_version
        # Opaque by specification, but a counter in every existing server. Any other value is accepted as it comes.
        return int(new) > int(old) if old.isdigit() and new.isdigit() else new != old

    async def _put(self, found: T) -> None:
        self._table[found.meta.uid] = found
        self._by_workspace.setdefault(found.meta.workspace_id, {})[found.meta.uid] = found
        await self._announce(found.meta.workspace_id)

    async def _drop(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)
        found = self._table.pop(uid, None)
        if found is None:
            return
        workspace = self._by_workspace.get(found.meta.workspace_id, {})
        workspace.pop(uid, None)
        if not workspace:
            self._by_workspace.pop(found.meta.workspace_id, None)
        await self._announce(found.meta.workspace_id)

    async def _announce(self, workspace_id: str | None) -> None:
        async with self._changed:
            self._changed.notify_all()
        for queue in self._listeners:
            try:
                queue.put_nowait(workspace_id)
            except asyncio.QueueFull:
                # The listener is too slow: it starts over by checking everything.
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
