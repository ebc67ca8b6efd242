"""Access to a workspace without its IDE: exec, processes, files, terminals, ports, SSH.

Only for the owner. Finds the `workspaced` of the running instance, waking the workspace first if requested, and passes the
request on. Holds no database connection meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from codehub.adapters.postgres import workspaces as statements
from codehub.adapters.postgres.pool import Database
from codehub.adapters.workspaced_client import Answer, ByteStream, WorkspacedClient, decoded
from codehub.domain.errors import Conflict, Denied, TooManyRequests, UpstreamUnavailable
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.domain.wording import error_text
from codehub.ports.instances import Instances, Upstream
from codehub.services.backend_answers import answered
from codehub.services.principal import Clock, Principal
from codehub.services.workspaces import Edit, Workspaces

# How often the row is polled after a wake; a start takes seconds. More rarely the longer it takes.
_POLL_INTERVAL_S, _LONGEST_POLL_INTERVAL_S = 0.25, 2.0
# A helper that was just started needs a moment until it listens.
_HELPER_TIMEOUT_S = 20.0
# CodeHub's own short requests, whose client does not end them by leaving. Making an SSH host key may take 30 s.
_JSON_TIMEOUT_S = 60.0
_CONNECT_INTERVAL_S, _LONGEST_CONNECT_INTERVAL_S = 0.05, 1.0
# Requests per workspace: each takes memory here, and time while it waits for a helper that does not answer.
MOST_AT_ONCE = 512
# Viewers of a workspace's terminals, who are idle for most of the time.
MOST_VIEWERS = 2_500
# Restoring a large home comes first. A client that does not want to wait closes its connection.
_WAKE_TIMEOUT_S = 600.0
# How stale `last_access_at` may be, so that not every request causes a write.
_TOUCH_EVERY = timedelta(seconds=30)
# Requests that change nothing may be sent twice.
_REPEATABLE: Final = frozenset({"GET", "HEAD"})
_RETRY_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Doors:
    database: Database
    workspaces: Workspaces
    instances: Mapping[str, Instances]
    clock: Clock
    client: WorkspacedClient = field(default_factory=WorkspacedClient)
    touched: dict[str, datetime] = field(default_factory=dict)
    under_way: dict[str, int] = field(default_factory=dict)

    async def find(self, who: Principal, workspace_id: str, *, wake: bool) -> Upstream:
        """Return the address of this workspace's helper. Raises Conflict if the workspace sleeps and `wake` is false."""
        workspace = await self._owned(who, workspace_id)
        if not _runs(workspace):
            if not wake:
                raise Conflict("the workspace is not running")
            await self._wake(who, workspace)
        elif workspace.desired_state is DesiredState.STANDBY and wake:
            await self._wake(who, workspace)
        if wake:
            # A request that must not wake the workspace (a page that refreshes itself) does not count as use.
            await self.touch(workspace_id)
        return await self._helper(workspace)

    async def _owned(self, who: Principal, workspace_id: str) -> Workspace:
        workspace = (await self.workspaces.get(who, workspace_id)).workspace
        if workspace.owner_user_id != who.user_id:
            raise Denied("only its owner may do this in a workspace")
        return workspace

    async def _wake(self, who: Principal, workspace: Workspace) -> None:
        if workspace.desired_state is not DesiredState.RUNNING:
            await self.workspaces.edit(who, workspace.id, Edit(desired_state=DesiredState.RUNNING))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with self._counted(workspace.id), asyncio.timeout(_WAKE_TIMEOUT_S):
                while True:
                    now = await self._owned(who, workspace.id)
                    if _runs(now):
                        return
                    if now.phase is Phase.ERROR:
                        raise Conflict(_why_not(now, who))
                    if now.desired_state is not DesiredState.RUNNING:
                        raise Conflict("the workspace was stopped while it was starting")
                    waited_s = loop.time() - begun
                    await asyncio.sleep(min(max(_POLL_INTERVAL_S, waited_s / 10), _LONGEST_POLL_INTERVAL_S))
        except TimeoutError:
            raise UpstreamUnavailable("the workspace is still starting: try again later") from None

    async def _helper(self, workspace: Workspace) -> Upstream:
        backend = self.instances.get(workspace.instance_backend)
        if backend is None:
            raise UpstreamUnavailable(f"this API process has no access to the {workspace.instance_backend} backend")
        status = await answered(workspace, backend.status(workspace.id))
        if not status.running:
            raise UpstreamUnavailable("the workspace has just ended: try again")
        if status.workspaced is None:
            raise Conflict("this workspace was started by an older CodeHub: stop and start it once to use this")
        return status.workspaced

    async def touch(self, workspace_id: str) -> None:
        """Record an access: use through the API keeps the workspace awake."""
        now = self.clock()
        last = self.touched.get(workspace_id)
        if last is None or now - last > _TOUCH_EVERY:
            if len(self.touched) > 10_000:
                self.touched.clear()
            self.touched[workspace_id] = now
            async with self.database.transaction() as tx:
                await statements.touch(tx, workspace_id, now)

    @contextlib.asynccontextmanager
    async def request(
        self,
        upstream: Upstream,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: AsyncIterable[bytes] | bytes | None = None,
    ) -> AsyncIterator[Answer]:
        """Pass a request on. One that changes nothing is repeated if the helper restarts meanwhile."""
        async with self._counted(upstream.identity), contextlib.AsyncExitStack() as stack:
            repeatable = method in _REPEATABLE and body is None

            async def ask() -> Answer:
                return await stack.enter_async_context(self.client.request(upstream, method, target, headers, body))

            yield await self._answered(upstream, ask, repeatable)

    @contextlib.asynccontextmanager
    async def stream(self, upstream: Upstream, target: str) -> AsyncIterator[ByteStream | Answer]:
        counted = self._counted(f"{upstream.identity} terminals", MOST_VIEWERS)
        async with counted, contextlib.AsyncExitStack() as stack:

            async def ask() -> ByteStream | Answer:
                return await stack.enter_async_context(self.client.stream(upstream, target))

            yield await self._answered(upstream, ask, repeatable=True)

    @contextlib.asynccontextmanager
    async def _counted(self, key: str, most: int | None = None) -> AsyncIterator[None]:
        count = self.under_way.get(key, 0)
        if count >= (MOST_AT_ONCE if most is None else most):
            raise TooManyRequests(f"{count} requests to this workspace are under way: wait until some have ended", 1)
        self.under_way[key] = count + 1
        try:
            yield
        finally:
            self.under_way[key] -= 1
            if not self.under_way[key]:
                del self.under_way[key]

    async def json(self, upstream: Upstream, method: str, target: str, body: object = None) -> object:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(_JSON_TIMEOUT_S),
                self.request(upstream, method, target, headers, sent) as answer,
            ):
                return await decoded(answer)
        except TimeoutError:
            raise UpstreamUnavailable("the workspace's helper (workspaced) does not answer") from None

    async def _answered(self, upstream: Upstream, ask: Callable[[], Awaitable[T]], repeatable: bool) -> T:
        """Return the answer. A connection that breaks before it is repeated: the helper may be restarting."""
        give_up = asyncio.get_running_loop().time() + _HELPER_TIMEOUT_S
        while True:
            await self._listening(upstream, give_up)
            try:
                return await ask()
            except UpstreamUnavailable:
                if not repeatable or asyncio.get_running_loop().time() > give_up:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _listening(self, upstream: Upstream, give_up: float) -> None:
        """Wait for the helper of an instance that has just started or restarted."""
        loop, pause_s = asyncio.get_running_loop(), _CONNECT_INTERVAL_S
        while not await self.client.listens(upstream):
            if loop.time() > give_up:
                raise UpstreamUnavailable(
                    "the workspace's helper (workspaced) does not answer; restart the workspace"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.2, _LONGEST_CONNECT_INTERVAL_S)


def _why_not(workspace: Workspace, who: Principal) -> str:
    message, remedy = error_text(workspace.error_reason, is_admin=who.is_admin)
    detail = f" ({workspace.error_message})" if workspace.error_message else ""
    return f"the workspace could not be started. {message.removesuffix('.')}{detail}. {remedy}"


def _runs(workspace: Workspace) -> bool:
    return workspace.phase is Phase.RUNNING and workspace.operation in (Operation.NONE, Operation.STARTING)
