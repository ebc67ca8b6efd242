"""SSH: users' public keys, each workspace's host key, and the setup of `sshd` in a running instance.

The workspace creates its host key once, and CodeHub stores it: the key stays the same after sleep, archive and restore, so
that clients can check it.
"""

from __future__ import annotations

from dataclasses import dataclass

from codehub.adapters.postgres import ssh_keys
from codehub.adapters.postgres.pool import Database
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, NotFound, UpstreamUnavailable
from codehub.domain.ids import is_id
from codehub.domain.ssh_keys import HostKey, SshKey, parse_public_key
from codehub.ports.instances import Upstream
from codehub.services.audit import note
from codehub.services.doors import Doors
from codehub.services.held_user import hold_user
from codehub.services.host_keys import NO_KEYS, keep_host_key
from codehub.services.principal import Clock, Ids, Principal

MAX_KEYS = 100


@dataclass(frozen=True, slots=True)
class SshAddress:
    """What a client needs besides a key and a token."""

    user: str
    host_key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Ssh:
    database: Database
    doors: Doors
    clock: Clock
    ids: Ids

    async def keys(self, who: Principal) -> list[SshKey]:
        async with self.database.transaction() as tx:
            return await ssh_keys.keys_of(tx, who.user_id)

    async def add_key(self, who: Principal, text: str, name: str) -> SshKey:
        """Add a key. Adding the same key again returns the existing one."""
        public = parse_public_key(text)
        made = SshKey(
            self.ids(), who.user_id, name or public.comment or "key", public.line, public.fingerprint, self.clock()
        )
        async with self.database.transaction() as tx:
            await hold_user(tx, who, made.created_at)
            if len(await ssh_keys.keys_of(tx, who.user_id)) >= MAX_KEYS:
                raise Conflict(f"you have {MAX_KEYS} SSH keys: remove one first")
            await ssh_keys.insert_key(tx, made)
            found = [key for key in await ssh_keys.keys_of(tx, who.user_id) if key.fingerprint == made.fingerprint]
            if found[0].id == made.id:
                await note(tx, AuditKind.SSH_KEY_ADDED, made.created_at, who, target=made.fingerprint)
        return found[0]

    async def remove_key(self, who: Principal, key_id: str) -> None:
        async with self.database.transaction() as tx:
            if not is_id(key_id) or not await ssh_keys.delete_key(tx, key_id, who.user_id):
                raise NotFound("you have no such SSH key")
            await note(tx, AuditKind.SSH_KEY_REMOVED, self.clock(), who, id=key_id)

    async def known_host(self, who: Principal, workspace_id: str) -> str | None:
        """Return the workspace's public host key, or None before the first connection."""
        await self.doors.workspaces.get(who, workspace_id)
        async with self.database.transaction() as tx:
            found = await ssh_keys.host_key(tx, workspace_id)
        return found.public_key if found is not None else None

    async def prepare(self, who: Principal, workspace_id: str, *, wake: bool) -> SshAddress:
        """Configure SSH in the running instance with its owner's current keys."""
        upstream = await self.doors.find(who, workspace_id, wake=wake)
        async with self.database.transaction() as tx:
            found = await ssh_keys.host_key(tx, workspace_id)
            keys = await ssh_keys.keys_of(tx, who.user_id)
        if not keys:
            raise Conflict(NO_KEYS)
        host_key = found if found is not None else await self._make_host_key(who, upstream, workspace_id)
        body = {"host_key": host_key.private_key, "authorized_keys": [key.public_key for key in keys]}
        match await self.doors.json(upstream, "PUT", "/ssh", body):
            case {"user": str(user)}:
                return SshAddress(user, host_key.public_key, parse_public_key(host_key.public_key).fingerprint)
            case _:
                raise UpstreamUnavailable("the workspace's helper answered something else than expected")

    async def _make_host_key(self, who: Principal, upstream: Upstream, workspace_id: str) -> HostKey:
        match await self.doors.json(upstream, "POST", "/ssh/host-key"):
            case {"private_key": str(private), "public_key": str(public)}:
                pass
            case _:
                raise UpstreamUnavailable("the workspace's helper answered something else than expected")
        async with self.database.transaction() as tx:
            return await keep_host_key(tx, workspace_id, who.user_id, private, public, self.clock())
