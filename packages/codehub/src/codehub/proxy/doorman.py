"""The gate as the data path meets it: decisions, remembered for two seconds, and the pages and redirects instead of them.

The database is asked once per credential and workspace in that time. While it is away, those who were let in within the
last minute go on; new ones are told to come back.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass
from math import inf
from typing import Final
from urllib.parse import quote

from codehub.domain import routing
from codehub.domain.errors import BackendDown, LimitExceeded, Transient
from codehub.domain.model import Operation
from codehub.domain.routing import Page
from codehub.proxy import pages
from codehub.proxy.admission import Admission, Credential, Reply, refusal
from codehub.proxy.asked import Asked, is_work, must_be_own, read, ticket_of
from codehub.proxy.clock import Clock
from codehub.proxy.headers import NONCE_COOKIE, OWN_PATH, TICKET_PARAMETER, bearer_token, cookie_value
from codehub.proxy.looks import Looks
from codehub.proxy.memory import Memory
from codehub.proxy.messages import RequestHead
from codehub.proxy.targets import Targets
from codehub.services.gate import Gate, Seen

# After the database failed to answer it is not asked again for this long by those who can go on without it.
PAUSE_S: Final = 2.0
_ID_END: Final = 39  # of `/w/` and an id
_MESSAGES: Final[dict[Page, str]] = {
    Page.NOT_FOUND: "there is no such workspace",
    Page.FORBIDDEN: "this workspace belongs to someone else",
    Page.WAKING: "the workspace is not up yet: ask again",
    Page.AWAY: "the workspace runs but does not answer",
    Page.ARCHIVED: "the workspace is archived: restore it in the dashboard",
    Page.PENDING: "the workspace is not started",
    Page.ERROR: "the workspace is in ERROR: its timeline says why",
    Page.LIMIT: "too many workspaces are running: stop one first",
    Page.UNAVAILABLE: "the database does not answer: ask again",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """`dashboard` is the public base URL; the other two are as in the settings."""

    dashboard: str
    workspaces: str
    host_pattern: str

    @property
    def secure(self) -> bool:
        return self.workspaces.startswith("https:")


class Doorman:
    def __init__(self, gate: Gate, targets: Targets, addresses: Addresses, clock: Clock) -> None:
        self._gate = gate
        self._targets = targets
        self._addresses = addresses
        self._clock = clock
        self._memory = Memory(clock)
        self._ask_again_at = 0.0
        self._renewals: set[asyncio.Task[None]] = set()
        self._looks = Looks(gate)

    # ── the hot path ─────────────────────────────────────────────────────────────────────────────────────────────

    def recall(self, request: RequestHead, cookies: list[bytes]) -> Admission | None:
        target = request.target
        workspace = target[3:_ID_END]
        token = bearer_token(request.fields.authorization) if request.fields.authorization else b""
        for secret in [token] if token else cookies[:4]:
            admission = self._memory.fresh((workspace, secret))
            if admission is None:
                continue
            if target[_ID_END : _ID_END + 1] != b"/" or target[:3] != b"/w/":
                return None
            if target.startswith(OWN_PATH, _ID_END + 1) or TICKET_PARAMETER in target:
                return None
            if admission.host and request.fields.host != admission.host:
                return None
            if request.fields.origin and request.fields.origin != admission.origin and must_be_own(request):
                return None
            if self._clock.now > admission.renew_at:
                self.renew(admission)
            return admission
        return None

    def renew(self, admission: Admission) -> None:
        """Nobody waits for the database every two seconds: whoever comes in the second half of an admission's life has
        it renewed for all, once."""
        admission.renew_at = inf
        task = asyncio.get_running_loop().create_task(self._renew(admission), name="renewal")
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, admission: Admission) -> None:
        workspace_id, secret = admission.credential[0].decode(), admission.credential[1]
        by_token = not admission.host
        try:
            seen = await self._looks.look(workspace_id, [] if by_token else [secret], secret if by_token else b"")
            target = await self._targets.find(seen.workspace) if seen.workspace is not None else None
        except (BackendDown, Transient):
            return  # it ends in time, and whoever comes then is told
        if not self._memory.holds(admission):
            return
        if target is admission.target and _route(seen, navigation=False, with_token=False) == routing.Forward():
            self._memory.refresh(admission)
        else:
            # Something changed: the next one is decided about anew.
            self._memory.drop(admission.credential)

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def decide(
        self, request: RequestHead, cookies: list[bytes], *, failed: Admission | None
    ) -> Admission | Reply:
        asked = read(request, cookies)
        if isinstance(asked, Reply):
            return asked
        if not routing.is_workspace_id(asked.workspace_id):
            return self._answer(asked, 404, Page.NOT_FOUND)
        misdirected = self._misdirected(asked)
        if misdirected is not None:
            return misdirected
        try:
            return await self._decide(asked, failed)
        except (BackendDown, Transient):
            self._ask_again_at = self._clock.now + PAUSE_S
            return self._kept(asked) or self._answer(asked, 503, Page.UNAVAILABLE, retry_after_s=5)

    async def _decide(self, asked: Asked, failed: Admission | None) -> Admission | Reply:
        if self._clock.now < self._ask_again_at and failed is None:
            kept = self._kept(asked)
            if kept is not None:
                return kept
        ticket = ticket_of(asked.rest)
        if ticket is not None:
            return await self._redeem(asked, *ticket)
        seen = await self._looks.look(asked.workspace_id, asked.cookies, asked.token)
        way = _route(seen, navigation=asked.navigation, with_token=bool(asked.token))
        if asked.rest.partition("?")[0].endswith(f"{asked.workspace_id}/{pages.STATUS_PATH}"):
            return await self._status(asked, seen)
        for secret in (asked.token, *asked.cookies):
            self._memory.drop((asked.workspace_id.encode(), secret))
        match way:
            case routing.SignIn():
                return self._sign_in(asked)
            case routing.Answer(status, page, retry_after_s):
                return self._answer(asked, status, page, seen=seen, retry_after_s=retry_after_s)
            case routing.Wake():
                return await self._wake(asked, seen)
            case routing.Forward(ask_running, rising, leaving):
                admission = await self._admit(asked, seen, failed, rising=rising, remember=not rising and not leaving)
                if ask_running or (leaving and isinstance(admission, Admission) and is_work(asked, admission)):
                    await self._ask_running(seen)
                return admission

    async def _admit(
        self, asked: Asked, seen: Seen, failed: Admission | None, *, rising: bool, remember: bool
    ) -> Admission | Reply:
        assert seen.workspace is not None
        target = await self._targets.find(seen.workspace, anew=failed is not None)
        # The same instance was tried a moment ago and did not take the connection.
        same = failed is not None and target is not None and target.pool is failed.target.pool
        if target is None or same:
            return self._away(asked, seen, rising=rising)
        own = self._addresses
        admission = Admission(
            (asked.workspace_id.encode(), seen.secret),
            target,
            b"" if asked.token else self._authority(asked.workspace_id),
            routing.workspace_origin(own.workspaces, own.host_pattern, asked.workspace_id).encode(),
            0.0,
            rising,
        )
        if remember:
            self._memory.remember(admission)
        return admission

    async def _wake(self, asked: Asked, seen: Seen) -> Reply:
        try:
            await self._gate.wake(seen)
        except LimitExceeded:
            assert seen.user_id is not None
            running = await self._gate.running(seen.user_id)
            return self._answer(asked, 502, Page.LIMIT, seen=seen, running=running)
        return self._answer(asked, 503, Page.WAKING, seen=seen, retry_after_s=routing.RETRY_AFTER_S)

    async def _ask_running(self, seen: Seen) -> None:
        try:
            await self._gate.wake(seen)
        except LimitExceeded:
            return  # it still runs: whoever comes in may go on until it sleeps

    async def _status(self, asked: Asked, seen: Seen) -> Reply:
        """For the pages that follow. Never wakes, is never activity."""
        if seen.user_id is None:
            return refusal(401, "sign in first")
        if seen.workspace is None or not seen.is_owner:
            return refusal(404, _MESSAGES[Page.NOT_FOUND])
        workspace = seen.workspace
        way = _route(seen, navigation=True, with_token=False)
        page: Page | None = Page.WAKING
        if isinstance(way, routing.Forward):
            page = None if await self._answers(seen) else Page.AWAY
        elif isinstance(way, routing.Answer):
            page = way.page
        body = pages.status_document(page, workspace)
        return Reply(200, body, ((b"Content-Type", b"application/json"),))

    async def _answers(self, seen: Seen) -> bool:
        assert seen.workspace is not None
        target = await self._targets.find(seen.workspace, anew=True)
        if target is None:
            return False
        try:
            target.pool.put(await target.pool.connect())
        except OSError:
            return False
        return True

    # ── signing in ───────────────────────────────────────────────────────────────────────────────────────────────

    def _sign_in(self, asked: Asked) -> Reply:
        if not asked.navigation:
            return refusal(401, "sign in first: no workspace cookie or API token, or one that is over")
        nonce = cookie_value(asked.request.fields.cookie, NONCE_COOKIE) or secrets.token_urlsafe(24).encode()
        digest = hashlib.sha256(nonce).hexdigest()
        place = f"{self._addresses.dashboard}/handover/{asked.workspace_id}"
        location = f"{place}?nonce={digest}&next={quote(asked.rest, safe='')}"
        return Reply(
            303,
            headers=(
                (b"Location", location.encode()),
                (b"Set-Cookie", self._cookie(NONCE_COOKIE, nonce, asked.workspace_id, b"; Max-Age=600")),
            ),
        )

    async def _redeem(self, asked: Asked, ticket: str, rest: str) -> Reply:
        nonce = cookie_value(asked.request.fields.cookie, NONCE_COOKIE)
        secret = None
        if asked.navigation and nonce:
            secret = await self._gate.redeem(ticket.encode(), nonce, asked.workspace_id)
        if secret is None:
            return self._answer(asked, 401, Page.SIGNED_OUT)
        return Reply(
            303,
            headers=(
                (b"Location", rest.encode()),
                (b"Set-Cookie", self._cookie(b"codehub_ws", secret.encode(), asked.workspace_id)),
                (b"Set-Cookie", self._cookie(NONCE_COOKIE, b"", asked.workspace_id, b"; Max-Age=0")),
            ),
        )

    def _cookie(self, name: bytes, value: bytes, workspace_id: str, more: bytes = b"") -> bytes:
        secure = b"; Secure" if self._addresses.secure else b""
        path = routing.workspace_path(workspace_id).encode()
        return b"%b=%b; Path=%b; HttpOnly; SameSite=Lax%b%b" % (name, value, path, secure, more)

    # ── addresses and answers ────────────────────────────────────────────────────────────────────────────────────

    def _authority(self, workspace_id: str) -> bytes:
        own = self._addresses
        return routing.workspace_authority(own.workspaces, own.host_pattern, workspace_id).encode()

    def _misdirected(self, asked: Asked) -> Reply | None:
        request = asked.request
        own = self._addresses
        origin = routing.workspace_origin(own.workspaces, own.host_pattern, asked.workspace_id)
        if request.fields.host.lower() != self._authority(asked.workspace_id).lower() and not asked.token:
            if asked.navigation:
                return Reply(307, headers=((b"Location", (origin + asked.rest).encode()),))
            return refusal(421, f"workspaces are at {origin}")
        if request.fields.origin and request.fields.origin.decode("latin-1") != origin and must_be_own(request):
            return refusal(403, "a foreign origin may not do this to a workspace")
        return None

    def _answer(
        self,
        asked: Asked,
        status: int,
        page: Page,
        *,
        seen: Seen | None = None,
        running: list[tuple[str, str]] | None = None,
        retry_after_s: int | None = None,
    ) -> Reply:
        if not asked.navigation:
            again = ((b"Retry-After", b"%d" % retry_after_s),) if retry_after_s is not None else ()
            return refusal(status, _MESSAGES.get(page, page.value), *again)
        owner = seen is not None and seen.is_owner
        return pages.render(
            page,
            status,
            dashboard=self._addresses.dashboard,
            workspace_id=asked.workspace_id if routing.is_workspace_id(asked.workspace_id) else "",
            workspace=seen.workspace if seen is not None and owner else None,
            running=running,
            retry_after_s=retry_after_s,
        )

    def _away(self, asked: Asked, seen: Seen | None, *, rising: bool) -> Reply:
        if rising:
            return self._answer(asked, 503, Page.WAKING, seen=seen, retry_after_s=routing.RETRY_AFTER_S)
        return self._answer(asked, 502, Page.AWAY, seen=seen, retry_after_s=routing.RETRY_AFTER_S)

    def away(self, request: RequestHead, admission: Admission) -> Reply:
        asked = read(request, [])
        return asked if isinstance(asked, Reply) else self._away(asked, None, rising=admission.rising)

    # ── what is remembered ───────────────────────────────────────────────────────────────────────────────────────

    def _kept(self, asked: Asked) -> Admission | None:
        workspace = asked.workspace_id.encode()
        return self._memory.kept((workspace, secret) for secret in ([asked.token] if asked.token else asked.cookies))

    def revoked(self, credentials: set[Credential]) -> None:
        for credential in credentials:
            self._memory.drop(credential)

    def sweep(self) -> None:
        self._memory.sweep()

    def close(self) -> None:
        for task in list(self._renewals):
            task.cancel()
        self._looks.close()


def _route(seen: Seen, *, navigation: bool, with_token: bool) -> routing.Route:
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
