"""The services behind the routes, created once per app, and how routes get them and the current user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from codehub.api.addresses import client_address
from codehub.api.config import ApiConfig, ApiDeps
from codehub.api.metrics import ApiMetrics
from codehub.api.workspace_views import workspace_view
from codehub.domain.cookies import cookie_values
from codehub.domain.errors import CodeHubError, Denied, Unauthorized
from codehub.domain.profiles import Catalog, Runs
from codehub.services.accounts import Accounts
from codehub.services.audit import Audit, Visits
from codehub.services.diagnostics import Diagnostics
from codehub.services.doors import Doors
from codehub.services.event_stream import EventBroadcaster
from codehub.services.lockout import Lockout
from codehub.services.passwords import TOKEN_PREFIX
from codehub.services.ports import Ports
from codehub.services.principal import Principal
from codehub.services.ssh import Ssh
from codehub.services.templates import Templates
from codehub.services.terminal_program import TerminalProgramFiles
from codehub.services.user_setup import UserSetup
from codehub.services.users import Users
from codehub.services.workspace_admin import WorkspaceAdmin
from codehub.services.workspace_copies import WorkspaceCopies
from codehub.services.workspaces import Workspaces

SESSION_KEY = "x-codehub-session-key"
# A browser cannot send custom headers with a WebSocket, only the protocols it offers: one of them carries the key.
KEY_PROTOCOL = "codehub.key."
# How long a stream outlives its session.
CHECK_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Context:
    deps: ApiDeps
    config: ApiConfig
    accounts: Accounts
    users: Users
    workspaces: Workspaces
    workspace_copies: WorkspaceCopies
    workspace_admin: WorkspaceAdmin
    diagnostics: Diagnostics
    doors: Doors
    templates: Templates
    ssh: Ssh
    user_setup: UserSetup
    ports: Ports
    terminal_program: TerminalProgramFiles
    audit: Audit
    live: EventBroadcaster
    metrics: ApiMetrics
    begun: float
    # Set when the process shuts down: all streams end.
    leaving: asyncio.Event

    def leave(self) -> None:
        self.live.stop()
        self.leaving.set()


def make_context(deps: ApiDeps) -> Context:
    config = deps.config
    live = EventBroadcaster(
        deps.database,
        deps.bus,
        prefix=config.sse_prefix,
        render=lambda owned, viewer, gaps: workspace_view(owned, config, viewer, gaps, deps.clock()).model_dump_json(
            by_alias=True
        ),
        clock=deps.clock,
        ids=deps.ids,
        pace=deps.pace,
    )
    workspaces = Workspaces(
        deps.database,
        config.limits,
        Catalog(deps.profiles, config.default_profile, config.allowed_images),
        deps.choose_backends,
        deps.clock,
        deps.ids,
        Visits(deps.clock),
        config.max_workspaces,
    )

    workspace_admin = WorkspaceAdmin(deps.database, deps.archives, deps.clock, config.max_workspaces)

    async def runtime() -> tuple[str, Runs]:
        chosen = await deps.choose_backends()
        return chosen.instance, chosen.runs

    doors = Doors(deps.database, workspaces, deps.instances, deps.clock)
    metrics = ApiMetrics(deps.registry)
    metrics.stream_failures.set_function(lambda: live.failures)
    return Context(
        deps=deps,
        config=config,
        accounts=Accounts(
            deps.database,
            deps.passwords,
            Lockout(deps.database, deps.clock),
            deps.clock,
            deps.ids,
            live.ended,
        ),
        users=make_users(deps, live.ended),
        workspaces=workspaces,
        workspace_copies=WorkspaceCopies(deps.database, config.limits, deps.clock, deps.ids, config.max_workspaces),
        workspace_admin=workspace_admin,
        diagnostics=Diagnostics(deps.database, workspaces, workspace_admin, deps.instances),
        doors=doors,
        templates=Templates(deps.database, workspaces.catalog, runtime, deps.clock, deps.instances),
        ssh=Ssh(deps.database, doors, deps.clock, deps.ids),
        user_setup=UserSetup(deps.database, deps.secret_box, deps.clock, deps.ids, deps.git_remote),
        ports=Ports(deps.database, doors, config.port_sharing, config.port_url_of, deps.clock, deps.ids),
        terminal_program=TerminalProgramFiles(deps.terminal_program),
        audit=Audit(deps.database, deps.clock, timedelta(seconds=config.audit_retention_s)),
        live=live,
        metrics=metrics,
        begun=deps.monotonic(),
        leaving=asyncio.Event(),
    )


def make_users(deps: ApiDeps, ended: Callable[[str], None] = lambda _: None) -> Users:
    return Users(deps.database, deps.passwords, deps.clock, deps.ids, ended, deps.second_user_refused)


def context_of(request: HTTPConnection) -> Context:
    return cast(Context, request.app.state.context)


def address_of(request: HTTPConnection) -> str:
    config = context_of(request).config
    return client_address(request.scope, request.headers, config.trusted_proxies, config.proxy_secret)


async def principal_or_none(request: HTTPConnection) -> Principal | None:
    found = await _bearer(request)
    return None if found is None else replace(found, address=address_of(request))


async def _bearer(request: HTTPConnection) -> Principal | None:
    """Authenticate by API token or by session. A session never makes up for an invalid token.

    A session is a cookie and a key in a header: only a page of the dashboard's own origin has the key.
    """
    context = context_of(request)
    if (authorization := request.headers.get("authorization")) is not None:
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret.startswith(TOKEN_PREFIX):
            return None
        return await context.accounts.by_token(secret)
    secrets = session_secrets(request)
    key = request.headers.get(SESSION_KEY, "") or _offered_key(request)
    return await context.accounts.by_session(secrets, key) if secrets and key else None


def session_secrets(request: HTTPConnection) -> list[str]:
    """Return the values of all session cookies. Pages on other hosts of the site can add some."""
    sent = "; ".join(request.headers.getlist("cookie")).encode("latin-1")
    name = context_of(request).config.session_cookie.encode()
    return [value.decode("latin-1") for value in cookie_values(sent, name) if value]


def _offered_key(request: HTTPConnection) -> str:
    for protocol in request.scope.get("subprotocols") or ():
        if protocol.startswith(KEY_PROTOCOL):
            return str(protocol.removeprefix(KEY_PROTOCOL))
    return ""


async def principal(request: HTTPConnection) -> Principal:
    who = await principal_or_none(request)
    if who is None:
        raise Unauthorized("sign in first: the session or API token is missing or has expired")
    if who.workspace_id is not None and not _within(request.url.path, who.workspace_id):
        raise Denied(f"this API token is valid for workspace {who.workspace_id} only")
    return who


async def signed_out(request: HTTPConnection, *, was_admin: bool = False) -> None:
    """Return when the session or token of an open stream has ended, or the role that it needs."""
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        try:
            who = await principal(request)
        except (Unauthorized, Denied):
            return
        except CodeHubError:
            continue  # the database is down: open connections continue
        if was_admin and not who.is_admin:
            return


def _within(path: str, workspace_id: str) -> bool:
    """Return whether a path belongs to one workspace. Checked here for all routes."""
    rest = path.removeprefix(f"/api/v1/workspaces/{workspace_id}")
    return path == "/api/v1/session" or (rest != path and rest[:1] in ("", "/", ":"))


# FastAPI runs a dependency that is no coroutine in a thread, which takes longer than these do.
async def _context(request: HTTPConnection) -> Context:
    return context_of(request)


async def _address(request: HTTPConnection) -> str:
    return address_of(request)


Ctx = Annotated[Context, Depends(_context)]
Who = Annotated[Principal, Depends(principal)]
Address = Annotated[str, Depends(_address)]
