"""Ports of a workspace: which are listening, who may open them, and temporary links for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from codehub.adapters.postgres import ports as statements
from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.ports import PortLink
from codehub.domain.audit import AuditKind
from codehub.domain.doors import narrowed
from codehub.domain.errors import Conflict, Denied, Invalid, NotFound, UpstreamUnavailable
from codehub.services.audit import note
from codehub.services.doors import Doors
from codehub.services.passwords import hash_secret, new_secret
from codehub.services.principal import Clock, Ids, Principal
from codehub.services.workspace_rows import locked_of_owner

MAX_SHARED: Final = 100  # ports of a workspace
MAX_LINKS: Final = 100  # to a port
LONGEST_LINK: Final = timedelta(days=30)
LINK_PARAMETER: Final = "codehub_link"


@dataclass(frozen=True, slots=True)
class Port:
    port: int
    process: str | None
    share: str
    url: str


@dataclass(frozen=True, slots=True)
class MintedLink:
    link: PortLink
    url: str


@dataclass(frozen=True, slots=True)
class Ports:
    database: Database
    doors: Doors
    widest: str  # the widest share that administrators allow
    url_of: Callable[[str, int], str]
    clock: Clock
    ids: Ids

    async def listed(self, who: Principal, workspace_id: str, *, wake: bool) -> list[Port]:
        upstream = await self.doors.find(who, workspace_id, wake=wake)
        found = await self.doors.json(upstream, "GET", "/ports")
        async with self.database.transaction() as tx:
            shares = await statements.shares(tx, workspace_id)
        match found:
            case {"items": [*items]}:
                listed = [_read(item) for item in items[:1000]]
            case _:
                raise UpstreamUnavailable("the workspace's helper answered something else than expected")
        return [
            Port(port, process, narrowed(shares.get(port, "owner"), self.widest), self.url_of(workspace_id, port))
            for port, process in listed
        ]

    async def share(self, who: Principal, workspace_id: str, port: int, share: str) -> str:
        await self._owned(who, workspace_id)
        if narrowed(share, self.widest) != share:
            raise Denied(_not_shared(self.widest))
        async with self.database.transaction() as tx:
            await locked_of_owner(tx, workspace_id, who.user_id)
            others = await statements.shares(tx, workspace_id)
            if share != "owner" and port not in others and len(others) >= MAX_SHARED:
                raise Conflict(f"{MAX_SHARED} ports of this workspace are shared: end the sharing of one first")
            await statements.set_share(tx, workspace_id, port, share, self.clock())
            await note(
                tx, AuditKind.PORT_SHARED, self.clock(), who, workspace_id=workspace_id, target=str(port), share=share
            )
        return share

    async def link(self, who: Principal, workspace_id: str, port: int, expires_in_s: float) -> MintedLink:
        """Create a URL that opens the port for anyone who has it. The port must be shared by link."""
        life = timedelta(seconds=expires_in_s)
        if not timedelta(0) < life <= LONGEST_LINK:
            raise Invalid(f"expires_in_s: up to {LONGEST_LINK.days} days")
        await self._owned(who, workspace_id)
        now, secret = self.clock(), new_secret()
        link = PortLink(self.ids(), workspace_id, port, now, now + life)
        async with self.database.transaction() as tx:
            await locked_of_owner(tx, workspace_id, who.user_id)
            if narrowed(await statements.share_of(tx, workspace_id, port), self.widest) != "link":
                raise Conflict(f"port {port} is not shared by link: share it first")
            await statements.delete_expired(tx, now)
            if len(await statements.links_of(tx, workspace_id, port, now)) >= MAX_LINKS:
                raise Conflict(f"port {port} has {MAX_LINKS} links: revoke one first")
            await statements.insert_link(tx, link, hash_secret(secret))
            until = link.expires_at.isoformat()
            await note(
                tx, AuditKind.PORT_LINK_CREATED, now, who, workspace_id=workspace_id, target=str(port), expires=until
            )
        return MintedLink(link, f"{self.url_of(workspace_id, port)}?{LINK_PARAMETER}={secret}")

    async def links(self, who: Principal, workspace_id: str, port: int) -> list[PortLink]:
        await self._owned(who, workspace_id)
        async with self.database.transaction() as tx:
            return await statements.links_of(tx, workspace_id, port, self.clock())

    async def revoke(self, who: Principal, workspace_id: str, link_id: str) -> None:
        await self._owned(who, workspace_id)
        async with self.database.transaction() as tx:
            if not await statements.delete_link(tx, link_id, workspace_id):
                raise NotFound("there is no such link")

    async def _owned(self, who: Principal, workspace_id: str) -> None:
        found = await self.doors.workspaces.get(who, workspace_id)
        if found.workspace.owner_user_id != who.user_id:
            raise Denied("only its owner shares a workspace's ports")


def _not_shared(widest: str) -> str:
    if widest == "owner":
        return (
            "ports are not shared here: an administrator would have to give each workspace its own host name "
            "(CODEHUB_WORKSPACE_HOST), or to allow it (CODEHUB_PORT_SHARING)"
        )
    return f"ports may be shared with {widest!r} at most here (CODEHUB_PORT_SHARING)"


def _read(item: object) -> tuple[int, str | None]:
    match item:
        case {"port": int(port), "process": str(name)} if 1 <= port <= 65535:
            return port, "".join(char for char in name if char.isprintable())[:64]
        case {"port": int(port)} if 1 <= port <= 65535:
            return port, None
        case _:
            raise UpstreamUnavailable("the workspace's helper answered something else than expected")
