"""The admission controller: decides about each request and caches the decision for two seconds, or answers it with a page.

The database is queried once per credential and workspace in that time. While the database is down, credentials admitted
within the last minute stay admitted; new requests get 503 with Retry-After.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import Final

from codehub.domain import routing
from codehub.domain.doors import Door, Kind, prefix_of, read_host, read_key
from codehub.domain.errors import BackendDown, LimitExceeded, Transient
from codehub.domain.ids import is_id
from codehub.domain.model import Operation, Phase
from codehub.domain.routing import Page
from codehub.proxy import pages, tab
from codehub.proxy.admission.addresses import Addresses
from codehub.proxy.admission.answers import MESSAGES, Answers
from codehub.proxy.admission.cache import AdmissionCache
from codehub.proxy.admission.cross_origin import answer_preflight, is_foreign_sibling, is_own_origin
from codehub.proxy.admission.decision import Admission, Credential, Reply, refusal
from codehub.proxy.admission.request_context import (
    ID_END,
    RequestContext,
    is_work,
    key_in_path,
    must_be_own,
    parameter_of,
    port_page_without_link,
    read,
    ticket_of,
)
from codehub.proxy.admission.sign_in import SignIn
from codehub.proxy.admission.singleflight import SingleFlight
from codehub.proxy.admission.targets import Targets
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.http1.headers import (
    LINK_NAME,
    OWN_PARAMETERS,
    OWN_PATH,
    PORT_PATH,
    as_location,
    bearer_token,
)
from codehub.proxy.http1.messages import RequestHead
from codehub.services.workspace_access import AccessSnapshot, WorkspaceAccess

# After a failed query, requests that have a cached admission use it for this long instead of querying again.
PAUSE_S: Final = 2.0
_MAX_HOSTS: Final = 4096


class AdmissionController:
    def __init__(self, access: WorkspaceAccess, targets: Targets, addresses: Addresses, clock: CoarseClock) -> None:
        self._access = access
        self._targets = targets
        self._addresses = addresses
        self._clock = clock
        self._cache = AdmissionCache(clock)
        self._query_again_at = 0.0
        self._renewals: set[asyncio.Task[None]] = set()
        self._lookups = SingleFlight(access)
        self._answers = Answers(addresses.dashboard)
        self._sign_in = SignIn(access, addresses)
        self._own_hosts: dict[bytes, bytes | None] = {}

    # ── the hot path ─────────────────────────────────────────────────────────────────────────────────────────────

    def recall(self, request: RequestHead, cookies: list[bytes]) -> Admission | None:
        target = request.target
        own = self._own_host(request.fields.host) if self._addresses.host_pattern else None
        key, begin = (own, 0) if own is not None else (key_in_path(target), ID_END)
        token = bearer_token(request.fields.authorization) if request.fields.authorization else b""
        for secret in [token] if token else cookies:
            admission = self._cache.fresh((key, secret))
            if admission is None:
                continue
            if _is_own(target, begin) or OWN_PARAMETERS in target:
                return None
            if admission.host and request.fields.host != admission.host:
                return None
            if request.fields.origin and request.fields.origin != admission.origin and must_be_own(request):
                return None
            if is_foreign_sibling(request, admission.origin, own_host=own is not None):
                return None
            if self._clock.now > admission.renew_at:
                self.renew(admission)
            return admission
        return None

    def _own_host(self, host: bytes) -> bytes | None:
        """Return the key of the port that owns this host. Caches the most requested hosts."""
        try:
            return self._own_hosts[host]
        except KeyError:
            found = read_host(host.decode("latin-1"), self._addresses.host_pattern)
            if len(self._own_hosts) >= _MAX_HOSTS:
                self._own_hosts.clear()
            key = self._own_hosts[host] = None if found is None else found[1].key(found[0])
            return key

    def renew(self, admission: Admission) -> None:
        """Renew an admission once for all requests, triggered by the first request in the second half of its lifetime.

        No request waits for the database every two seconds.
        """
        admission.renew_at = inf
        task = asyncio.get_running_loop().create_task(self._renew(admission), name="renewal")
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, admission: Admission) -> None:
        (workspace_id, door), secret = read_key(admission.credential[0]), admission.credential[1]
        by_token = not admission.host
        try:
            seen = await self._lookups.do(workspace_id, [] if by_token else [secret], secret if by_token else b"")
            target = await self._targets.find(seen.workspace, door) if seen.workspace is not None else None
        except (BackendDown, Transient):
            return  # the admission expires on time, and the next request reports the error
        if not self._cache.holds(admission):
            return
        if target is admission.target and _route(seen, navigation=False, with_token=False) == routing.Forward():
            self._cache.refresh(admission)
        else:
            # Something changed: the next request is decided again.
            self._cache.drop(admission.credential)

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def decide(
        self, request: RequestHead, cookies: list[bytes], *, failed: Admission | None
    ) -> Admission | Reply:
        context = read(request, cookies, self._addresses.host_pattern)
        if isinstance(context, Reply):
            return context
        if not is_id(context.workspace_id):
            return self._answers.page(context, 404, Page.NOT_FOUND)
        if context.door.is_stream and not context.token:
            return refusal(401, "this needs an API token: Authorization: Bearer cht_…")
        origin = self._addresses.origin(context.workspace_id, context.door)
        answered = self._misdirected(context, origin) or answer_preflight(context, origin)
        if answered is not None:
            return answered
        try:
            return await self._decide(context, failed)
        except (BackendDown, Transient):
            self._query_again_at = self._clock.now + PAUSE_S
            return self._kept(context) or self._answers.page(context, 503, Page.UNAVAILABLE, retry_after_s=5)

    async def _decide(self, context: RequestContext, failed: Admission | None) -> Admission | Reply:
        if self._clock.now < self._query_again_at and failed is None:
            kept = self._kept(context)
            if kept is not None:
                return kept
        ticket = ticket_of(context.rest)
        if ticket is not None:
            redeemed = await self._sign_in.redeem(context, *ticket)
            return redeemed or self._answers.page(context, 401, Page.SIGNED_OUT)
        seen = await self._lookups.do(context.workspace_id, context.cookies, context.token)
        if context.door.kind is Kind.PORT and not seen.is_owner:
            guest = await self._guest(context, seen, failed)
            if guest is not None:
                return guest
        elif (address := port_page_without_link(context)) is not None:
            return Reply(303, headers=((b"Location", as_location(address.encode())),))
        way = _route(seen, navigation=context.navigation, with_token=bool(context.token))
        path = context.rest.partition("?")[0].removeprefix(f"{prefix_of(context.workspace_id, context.door)}/")
        if path == pages.STATUS_PATH:
            return await self._status(context, seen)
        if path == tab.SCRIPT_PATH:
            return Reply(200, tab.script(), ((b"Content-Type", b"text/javascript; charset=utf-8"),))
        if path == tab.WAKE_PATH:
            return await self._wake_from_page(context, seen, way)
        for secret in (context.token, *context.cookies):
            self._cache.drop((context.key, secret))
        match way:
            case routing.SignIn():
                return self._sign_in.redirect(context)
            case routing.Answer(status, page, retry_after_s):
                return self._answers.page(context, status, page, seen=seen, retry_after_s=retry_after_s)
            case routing.Wake():
                return await self._wake(context, seen)
            case routing.Forward(request_start, rising, leaving):
                admission = await self._admit(
                    context,
                    seen,
                    failed,
                    rising=rising,
                    remember=not rising and not leaving and not context.door.is_stream,
                )
                if request_start or (leaving and isinstance(admission, Admission) and is_work(context, admission)):
                    await self._request_start(seen)
                return admission

    async def _guest(
        self, context: RequestContext, seen: AccessSnapshot, failed: Admission | None
    ) -> Admission | Reply | None:
        """Admit another user to a port if its owner shares it. Guests do not wake a workspace."""
        link, rest = parameter_of(context.rest, LINK_NAME.decode()) or ("", "")
        links = [link.encode()] if link else self._sign_in.values(context, LINK_NAME)
        port = context.door.port
        path = prefix_of(context.workspace_id, context.door) + "/"
        secret = await self._access.may_open_port(context.workspace_id, port, user_id=seen.user_id, links=links)
        if secret is None:
            if seen.user_id is not None or not links:
                return None
            # Without the cookie, the next request leads to the sign-in.
            ended = self._answers.page(context, 401, Page.LINK_ENDED)
            forget = self._sign_in.set_cookie(LINK_NAME, b"", path, b"; Max-Age=0")
            return replace(ended, headers=(*ended.headers, (b"Set-Cookie", forget)))
        if link:
            return Reply(
                303,
                headers=(
                    (b"Location", as_location(rest.encode())),
                    (b"Set-Cookie", self._sign_in.set_cookie(LINK_NAME, link.encode(), path)),
                ),
            )
        workspace = seen.workspace
        if workspace is None or workspace.phase is not Phase.RUNNING:
            return self._answers.page(context, 503, Page.AWAY, retry_after_s=routing.RETRY_AFTER_S)
        by_link = seen.user_id is None
        holder = replace(seen, secret=secret) if by_link else seen
        return await self._admit(context, holder, failed, rising=False, remember=not by_link, by_link=by_link)

    async def _admit(
        self,
        context: RequestContext,
        seen: AccessSnapshot,
        failed: Admission | None,
        *,
        rising: bool,
        remember: bool,
        by_link: bool = False,
    ) -> Admission | Reply:
        assert seen.workspace is not None
        target = await self._targets.find(seen.workspace, context.door, again=failed is not None)
        silent = self._targets.is_silent(seen.workspace.instance_backend)
        # The same instance just refused the connection.
        same = failed is not None and target is not None and target.pool is failed.target.pool
        if target is None or same:
            if context.door.kind is Kind.PORT and not rising and not silent:
                if target is not None:
                    # The next server on this port may be a different one.
                    target.rewrite = replace(target.rewrite, strip=True)
                return self._answers.page(
                    context, 502, Page.PORT_CLOSED, seen=seen, retry_after_s=routing.RETRY_AFTER_S
                )
            return self._away(context, seen, rising=rising, silent=silent)
        admission = Admission(
            (context.key, seen.secret),
            target,
            b"" if context.token else self._addresses.authority(context.workspace_id, context.door),
            self._addresses.origin(context.workspace_id, context.door).encode(),
            0.0,
            rising,
            by_link,
        )
        if remember:
            self._cache.remember(admission)
        return admission

    async def _wake(self, context: RequestContext, seen: AccessSnapshot) -> Reply:
        try:
            await self._access.wake(seen)
        except LimitExceeded:
            assert seen.user_id is not None
            running = await self._access.running(seen.user_id)
            return self._answers.page(context, 502, Page.LIMIT, seen=seen, running=running)
        return self._answers.page(context, 503, Page.WAKING, seen=seen, retry_after_s=routing.RETRY_AFTER_S)

    async def _wake_from_page(self, context: RequestContext, seen: AccessSnapshot, way: routing.Route) -> Reply:
        """Wake the workspace for a page of its IDE that is still open, without leaving the page."""
        if context.request.method != b"POST":
            return refusal(405, "use POST", (b"Allow", b"POST"))
        if seen.workspace is not None and seen.is_owner:
            way = _route(seen, navigation=True, with_token=False)
        if isinstance(way, routing.Wake):
            try:
                await self._access.wake(seen)
            except LimitExceeded:
                assert seen.workspace is not None
                return self._answers.status(Page.LIMIT, seen.workspace)
            seen = await self._lookups.do(context.workspace_id, context.cookies, context.token)
        return await self._status(context, seen)

    async def _request_start(self, seen: AccessSnapshot) -> None:
        try:
            await self._access.wake(seen)
        except LimitExceeded:
            return  # it still runs: requests are served until it sleeps

    async def _status(self, context: RequestContext, seen: AccessSnapshot) -> Reply:
        """Answer status requests of waiting pages. Never wakes the workspace and never counts as activity."""
        if seen.user_id is None:
            return refusal(401, "sign in first")
        if seen.workspace is None or not seen.is_owner:
            return refusal(404, MESSAGES[Page.NOT_FOUND])
        workspace = seen.workspace
        way = _route(seen, navigation=True, with_token=False)
        page: Page | None = Page.WAKING
        if isinstance(way, routing.Forward):
            closed = Page.AWAY
            if context.door.kind is Kind.PORT and not self._targets.is_silent(workspace.instance_backend):
                closed = Page.PORT_CLOSED
            page = None if await self._responds(seen, context.door) else closed
        elif isinstance(way, routing.Answer):
            page = way.page
        return self._answers.status(page, workspace)

    async def _responds(self, seen: AccessSnapshot, door: Door) -> bool:
        assert seen.workspace is not None
        target = await self._targets.find(seen.workspace, door, again=True)
        if target is None:
            return False
        try:
            target.pool.put(await target.pool.connect())
        except OSError:
            return False
        return True

    # ── addresses and answers ────────────────────────────────────────────────────────────────────────────────────

    def _misdirected(self, context: RequestContext, origin: str) -> Reply | None:
        request = context.request
        workspace_id, door = context.workspace_id, context.door
        if request.fields.host.lower() != self._addresses.authority(workspace_id, door).lower() and not context.token:
            if context.navigation:
                right = self._addresses.url(workspace_id, door, context.rest)
                return Reply(307, headers=((b"Location", right.encode()),))
            return refusal(421, f"workspaces are at {origin}")
        if must_be_own(request) and not is_own_origin(context, origin):
            return refusal(403, "a foreign origin may not do this to a workspace")
        outside = is_foreign_sibling(request, origin.encode(), own_host=door.own_host)
        if outside and not context.navigation and not context.token:
            return refusal(403, "another host of this site may not load or embed a workspace")
        return None

    def _away(
        self, context: RequestContext, seen: AccessSnapshot | None, *, rising: bool, silent: bool = False
    ) -> Reply:
        again = routing.RETRY_AFTER_S
        if rising:
            return self._answers.page(context, 503, Page.WAKING, seen=seen, retry_after_s=again)
        return self._answers.page(context, 502, Page.AWAY, seen=seen, retry_after_s=again, backend_silent=silent)

    def away(self, request: RequestHead, admission: Admission) -> Reply:
        context = read(request, [], self._addresses.host_pattern)
        return context if isinstance(context, Reply) else self._away(context, None, rising=admission.rising)

    # ── caches ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _kept(self, context: RequestContext) -> Admission | None:
        return self._cache.kept(
            (context.key, secret) for secret in ([context.token] if context.token else context.cookies)
        )

    def revoked(self, credentials: set[Credential]) -> None:
        for credential in credentials:
            self._cache.drop(credential)

    def sweep(self) -> None:
        self._cache.sweep()

    def close(self) -> None:
        for task in list(self._renewals):
            task.cancel()
        self._lookups.close()


def _is_own(target: bytes, begin: int) -> bool:
    """Return whether a path below a workspace or a port belongs to the proxy."""
    at = begin + 1
    if target.startswith(PORT_PATH, at) and begin:
        at = target.find(b"/", at + len(PORT_PATH)) + 1
    return target.startswith(OWN_PATH, at)


def _route(seen: AccessSnapshot, *, navigation: bool, with_token: bool) -> routing.Route:
    workspace = seen.workspace
    return routing.route(
        signed_in=seen.user_id is not None,
        is_owner=seen.is_owner,
        phase=workspace.phase if workspace else None,
        desired=workspace.desired_state if workspace else None,
        operation=workspace.operation if workspace else Operation.NONE,
        navigation=navigation,
        with_token=with_token,
    )
