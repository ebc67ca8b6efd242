"""One-time sign-in links: turn an API token into a browser session with no more rights than the token (ADR 0251)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from codehub.adapters.postgres import login_links, users, workspaces
from codehub.adapters.postgres.login_links import LoginLink
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.accounts import Session
from codehub.domain.audit import AuditKind
from codehub.domain.errors import TooManyRequests, Unauthorized
from codehub.domain.model import Workspace
from codehub.services.accounts import Accounts
from codehub.services.audit import note
from codehub.services.held_user import hold_user
from codehub.services.passwords import hash_secret, new_secret
from codehub.services.principal import Clock, Principal
from codehub.services.workspaces import Workspaces

# Long enough for a browser to start on a slow machine, and no longer.
LINK_LIFE = timedelta(seconds=60)
MAX_LINKS = 100


@dataclass(frozen=True, slots=True)
class Redeemed:
    """A new session and the workspace to open. `secret` is only for the cookie, `key` for the dashboard's storage."""

    session: Session
    secret: str
    key: str
    workspace: Workspace | None


@dataclass(frozen=True, slots=True)
class LoginLinks:
    database: Database
    workspaces: Workspaces
    accounts: Accounts
    clock: Clock

    async def make(self, who: Principal, workspace_id: str | None) -> str:
        """Return the secret of a new link for the same user.

        The link opens that workspace, which they must be allowed to see.
        """
        if workspace_id is not None:
            await self.workspaces.get(who, workspace_id)
        secret = new_secret()
        now = self.clock()
        async with self.database.transaction() as tx:
            await hold_user(tx, who, now)
            if await login_links.count_of(tx, who.user_id, now) >= MAX_LINKS:
                raise TooManyRequests(f"{MAX_LINKS} sign-in links wait to be opened: try again in a minute", 60)
            await login_links.insert(
                tx,
                hash_secret(secret),
                user_id=who.user_id,
                token_id=who.token_id,
                workspace_id=workspace_id,
                expires_at=now + LINK_LIFE,
            )
            await note(tx, AuditKind.LOGIN_LINK, now, who, workspace_id=workspace_id)
        return secret

    async def peek(self, secret: str) -> LoginLink:
        async with self.database.transaction() as tx:
            link = await login_links.peek(tx, hash_secret(secret), self.clock())
        return _there(link)

    async def use_up(self, secret: str) -> Workspace | None:
        """Use up the link and return its workspace, for a browser that needs no new session."""
        async with self.database.transaction() as tx:
            return await _workspace_of(tx, _there(await login_links.take(tx, hash_secret(secret), self.clock())))

    async def redeem(self, secret: str, *, address: str, user_agent: str) -> Redeemed:
        """Use up the link. The session lasts as long as any other, but never longer than the token."""
        async with self.database.transaction() as tx:
            # Before the link, in the order of those who end sessions and links.
            await users.lock(tx, _there(await login_links.peek(tx, hash_secret(secret), self.clock())).user_id)
            link = _there(await login_links.take(tx, hash_secret(secret), self.clock()))
            session, session_secret, key = await self.accounts.begin_session(
                tx,
                link.user_id,
                address=address,
                user_agent=user_agent,
                token_id=link.token_id,
                token_expires_at=link.token_expires_at,
            )
            who = Principal(link.user_id, link.username, False, session.id, False, None, token_id=link.token_id)
            await note(tx, AuditKind.SIGN_IN, self.clock(), who, address=address, by="sign-in link")
            return Redeemed(session, session_secret, key, await _workspace_of(tx, link))


async def _workspace_of(tx: Transaction, link: LoginLink) -> Workspace | None:
    found = await workspaces.get(tx, link.workspace_id) if link.workspace_id is not None else None
    return None if found is None else found.workspace


def _there(link: LoginLink | None) -> LoginLink:
    if link is None:
        raise Unauthorized(
            "this sign-in link was used already or is older than a minute: `codehub ws open` makes another"
        )
    return link
