"""The workspace proxy's database access: who sent a request, the workspace's state, waking it, and the ticket.

A ticket carries a user's sign-in from the dashboard's origin to the workspace's. It is valid once, within a minute, and
bound to the nonce of the requesting browser. No connection is held beyond a call.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from codehub.adapters.postgres import audit, ports, timeline, users, workspaces
from codehub.adapters.postgres import proxy_access as statements
from codehub.adapters.postgres.pool import Database
from codehub.domain.audit import AuditEvent, AuditKind
from codehub.domain.doors import narrowed
from codehub.domain.errors import Denied, WorkspaceNotFound
from codehub.domain.limits import RunningLimits
from codehub.domain.model import DesiredState, Phase, Workspace
from codehub.services.audit import BY_LINK, Visits
from codehub.services.passwords import hash_secret, new_secret
from codehub.services.principal import Clock, Principal

TICKET_LIFE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    """One access check: the workspace's row, and the authenticated user. `secret` is the credential that was valid."""

    workspace: Workspace | None
    user_id: str | None
    username: str = ""
    secret: bytes = b""

    @property
    def is_owner(self) -> bool:
        return self.workspace is not None and self.workspace.owner_user_id == self.user_id


@dataclass(frozen=True, slots=True)
class WorkspaceAccess:
    database: Database
    limits: RunningLimits
    clock: Clock
    visits: Visits | None = None  # for the audit trail, in the proxy, where other users may visit
    widest_share: str = "link"  # the widest share that administrators allow for ports

    async def snapshot(self, workspace_id: str, *, cookies: Sequence[bytes], token: bytes) -> AccessSnapshot:
        """Check access. A cookie never makes up for an invalid token."""
        now = self.clock()
        presented = {_hash(secret): secret for secret in ([token] if token else cookies)}
        async with self.database.transaction() as tx:
            workspace = await statements.workspace(tx, workspace_id)
            holder = None
            if token:
                holder = await statements.by_token(tx, _hash(token), now)
            elif presented:
                holder = await statements.by_cookies(tx, list(presented), workspace_id, now)
        if holder is None or holder.workspace_id not in (None, workspace_id):
            return AccessSnapshot(workspace, None)
        return AccessSnapshot(workspace, holder.user_id, holder.username, presented[holder.secret_hash])

    async def may_open_port(
        self, workspace_id: str, port: int, *, user_id: str | None, links: Sequence[bytes]
    ) -> bytes | None:
        """Return what lets a guest open the port: the link that is valid, or nothing (`b""`) but being signed in.

        None if the guest may not open it.
        """
        by_hash = {_hash(link): link for link in links}
        async with self.database.transaction() as tx:
            share = narrowed(await ports.share_of(tx, workspace_id, port), self.widest_share)
            used: bytes | None = None
            if user_id is not None and share in ("users", "link"):
                used = b""
            elif by_hash and share == "link":
                live = await ports.live_link(tx, list(by_hash), workspace_id, port, self.clock())
                used = None if live is None else by_hash[live]
            if (
                used is not None
                and self.visits is not None
                and self.visits.is_new(workspace_id, str(port), user_id or "")
            ):
                visitor = None if user_id is None else await users.get(tx, user_id)
                name = BY_LINK if visitor is None else visitor.username
                opened = AuditEvent(
                    self.clock(), AuditKind.PORT_OPENED, name, user_id, target=str(port), workspace_id=workspace_id
                )
                await audit.record(tx, opened)
            return used

    async def wake(self, seen: AccessSnapshot) -> None:
        """Set the desired state to RUNNING.

        Raises LimitExceeded. A workspace whose state changed meanwhile is left unchanged.
        """
        workspace = seen.workspace
        assert workspace is not None
        async with self.database.transaction() as tx:
            if workspace.desired_state is not DesiredState.RUNNING:
                await workspaces.take_running_slot(tx, workspace.owner_user_id, workspace.id, self.limits)
            row = await workspaces.lock(tx, workspace.id)
            if row is None or row.desired_state in (DesiredState.RUNNING, DesiredState.DELETED):
                return
            if row.phase not in (Phase.STANDBY, Phase.RUNNING):
                return
            now = self.clock()
            await workspaces.set_desired_state(tx, row.id, DesiredState.RUNNING, now)
            await timeline.record(
                tx, row.id, at=now, kind="wake", message="opened: start requested", actor=seen.username
            )

    async def running(self, user_id: str) -> list[tuple[str, str]]:
        async with self.database.transaction() as tx:
            return await statements.running_of(tx, user_id)

    async def still_live(self, secrets: Collection[bytes]) -> set[bytes]:
        by_hash = {_hash(secret): secret for secret in secrets}
        async with self.database.transaction() as tx:
            live = await statements.still_live(tx, list(by_hash), self.clock())
        return {by_hash[digest] for digest in live}

    async def may_still_open(self, held: Sequence[tuple[str, int, bytes]]) -> set[tuple[str, int, bytes]]:
        """Return which of these (workspace, port, secret) may stay open.

        The owner's may, and those the port is still shared with.
        """
        hashes = [(workspace_id, port, _hash(secret)) for workspace_id, port, secret in held]
        async with self.database.transaction() as tx:
            live = await ports.still_open(tx, hashes, self.widest_share, self.clock())
        return {one for one, hashed in zip(held, hashes, strict=True) if hashed in live}

    async def issue(self, who: Principal, workspace_id: str, nonce_hash: bytes) -> str:
        """Create a ticket for the owner's browser. Raises WorkspaceNotFound or Denied."""
        now = self.clock()
        ticket = new_secret()
        async with self.database.transaction() as tx:
            workspace = await statements.workspace(tx, workspace_id)
            if (
                workspace is None
                or workspace.deleted_at is not None
                or workspace.desired_state is DesiredState.DELETED
            ):
                raise WorkspaceNotFound("there is no such workspace")
            if workspace.owner_user_id != who.user_id and not await ports.any_shared(tx, workspace_id):
                raise Denied("this workspace belongs to someone else")
            if who.workspace_id not in (None, workspace_id):
                raise Denied("the API token that you signed in with is good for another workspace only")
            await statements.delete_expired_tickets(tx, now)
            await statements.insert_ticket(
                tx,
                ticket_hash=hash_secret(ticket),
                nonce_hash=nonce_hash,
                session_id=who.bearer_id,
                workspace_id=workspace_id,
                expires_at=now + TICKET_LIFE,
            )
        return ticket

    async def redeem(self, ticket: bytes, nonces: Sequence[bytes], workspace_id: str) -> str | None:
        """Exchange a ticket for a workspace cookie's secret. One of the browser's nonces must be the ticket's.

        None if it is used, expired, or for another browser or workspace.
        """
        now = self.clock()
        async with self.database.transaction() as tx:
            taken = await statements.take_ticket(tx, _hash(ticket), now)
            if taken is None:
                return None
            nonce_hash, session_id, ticket_workspace = taken
            ours = any(hmac.compare_digest(nonce_hash, _hash(nonce)) for nonce in nonces)
            if ticket_workspace != workspace_id or not ours:
                return None
            secret = new_secret()
            await statements.insert_proxy_session(
                tx, secret_hash=hash_secret(secret), session_id=session_id, workspace_id=workspace_id, now=now
            )
            return secret


def _hash(secret: bytes) -> bytes:
    return hash_secret(secret.decode("utf-8", "surrogateescape"))
