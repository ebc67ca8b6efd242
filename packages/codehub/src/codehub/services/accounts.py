"""Sign-in and sign-out, sessions, API tokens, and changing one's own password.

`users` holds the administrators' actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.adapters.postgres import sessions, users, workspaces
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.accounts import Bearer, Session, Token, User
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Denied, NotFound, Unauthorized, WorkspaceNotFound
from codehub.domain.ids import is_id
from codehub.services.audit import note
from codehub.services.held_user import hold_user
from codehub.services.lockout import FORGET_AFTER, Attempt, Lockout
from codehub.services.passwords import Passwords, hash_secret, new_secret, new_token
from codehub.services.principal import Clock, Ids, Principal

SESSION_LIFE = timedelta(hours=24)
MAX_TOKENS = 200
# Browsers of a user, or of one token, that are signed in at a time.
MAX_SESSIONS = 200


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A new session in two halves: `secret` goes into the cookie, `key` into the storage of the dashboard's origin."""

    user: User
    session: Session
    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class MintedToken:
    token: Token
    secret: str


@dataclass(frozen=True, slots=True)
class Accounts:
    database: Database
    passwords: Passwords
    lockout: Lockout
    clock: Clock
    ids: Ids
    # Called for every session and token that ends here, so that its live streams end too.
    ended: Callable[[str], None]

    async def sign_in(self, username: str, password: str, *, address: str, user_agent: str) -> SignedIn:
        async with self.lockout.attempt(username, address) as attempt:
            async with self.database.transaction() as tx:
                known = await users.credentials(tx, username)
            stored = known.password_hash if known else None
            right = await self.passwords.verify(stored, password, familiar=attempt.familiar)
            if known is None or not right:
                await self._note_failure(known, address, attempt, "wrong user name or password")
                raise Unauthorized("wrong user name or password")
            if known.user.disabled_at is not None:
                await self._note_failure(known, address, attempt, "the account is disabled")
                # Only shown to users who know the password.
                raise Unauthorized("this account is disabled: ask an administrator to enable it")
            await self.lockout.forgive(username, address)
        now = self.clock()
        async with self.database.transaction() as tx:
            # Checking a password takes a while, and its reset meanwhile has ended all sessions but this one.
            current = await users.locked_credentials(tx, known.user.id)
            if current is None or current.password_hash != stored or current.user.disabled_at is not None:
                raise Unauthorized("the account was changed meanwhile: sign in again")
            # Expired sessions are removed at each sign-in; there is no separate job for it.
            await sessions.delete_expired(tx, now)
            await users.forget_old_failures(tx, now - FORGET_AFTER)
            session, secret, key = await self.begin_session(tx, known.user.id, address=address, user_agent=user_agent)
            await note(tx, AuditKind.SIGN_IN, now, _as(known.user, session.id), address=address)
        return SignedIn(known.user, session, secret, key)

    async def _note_failure(
        self, known: users.Credentials | None, address: str, attempt: Attempt, reason: str
    ) -> None:
        """Record a failed sign-in. An unknown name is not recorded, because users sometimes type their password there."""
        name = known.user.username if known else ""
        async with self.database.transaction() as tx:
            now = self.clock()
            await note(tx, AuditKind.SIGN_IN_FAILED, now, address=address, target=name, reason=reason)
            if attempt.locks is not None:
                seconds = attempt.locks.total_seconds()
                await note(tx, AuditKind.LOCKED_OUT, now, address=address, target=name, seconds=seconds)

    async def forget_old_failures(self) -> None:
        """Remove old counts of failed sign-ins, also where strangers try and nobody signs in."""
        async with self.database.transaction() as tx:
            await users.forget_old_failures(tx, self.clock() - FORGET_AFTER)

    async def begin_session(
        self,
        tx: Transaction,
        user_id: str,
        *,
        address: str,
        user_agent: str,
        token_id: str | None = None,
        token_expires_at: datetime | None = None,
    ) -> tuple[Session, str, str]:
        """Start a session. Returns it, the secret for its cookie and the key for the dashboard's own storage.

        A session created by an API token has no more rights than the token, and never outlives it. The caller has locked
        the user's row. The oldest sessions beyond the limit end.
        """
        now, secret, key = self.clock(), new_secret(), new_secret()
        until = min(now + SESSION_LIFE, token_expires_at or now + SESSION_LIFE)
        session = Session(self.ids(), user_id, now, until, now, address, user_agent[:255])
        await sessions.insert_session(tx, session, hash_secret(secret), hash_secret(key), token_id=token_id)
        await sessions.keep_newest(tx, user_id, token_id, MAX_SESSIONS)
        return session, secret, key

    async def by_session(self, secrets: Sequence[str], key: str) -> Principal | None:
        """Return the principal of a session. `secrets` are the browser's cookies, of which some may be forged.

        Both halves are required: cookies ignore ports, so other programs on the dashboard's host may have seen the cookie.
        """
        # Without a transaction: this runs before every request, and its two statements need not be atomic.
        async with self.database.statement() as tx:
            bearer = await sessions.by_session_secrets(
                tx, [hash_secret(secret) for secret in secrets], hash_secret(key), self.clock()
            )
        return None if bearer is None else _principal(bearer, by_token=False)

    async def signed_in_here(self, secrets: Sequence[str]) -> list[tuple[str, str]]:
        """Return (id, user name) from the cookies alone, for display. They grant no access, and may be forged."""
        async with self.database.transaction() as tx:
            return await sessions.users_of_cookies(tx, [hash_secret(secret) for secret in secrets], self.clock())

    async def by_token(self, secret: str) -> Principal | None:
        async with self.database.statement() as tx:
            bearer = await sessions.by_token_secret(tx, hash_secret(secret), self.clock())
        return None if bearer is None else _principal(bearer, by_token=True)

    async def sign_out(self, who: Principal) -> None:
        if who.by_token:
            who.must_be_present()
        async with self.database.transaction() as tx:
            await hold_user(tx, who, self.clock())
            await sessions.delete_session(tx, who.bearer_id, who.user_id)
            await note(tx, AuditKind.SIGN_OUT, self.clock(), who)
        self.ended(who.bearer_id)

    async def list_sessions(self, who: Principal, limit: int, offset: int) -> tuple[list[Session], int]:
        async with self.database.transaction() as tx:
            return await sessions.sessions_of(tx, who.user_id, self.clock(), limit, offset)

    async def end_session(self, who: Principal, session_id: str) -> None:
        who.must_be_present()
        async with self.database.transaction() as tx:
            await hold_user(tx, who, self.clock())
            if not is_id(session_id) or not await sessions.delete_session(tx, session_id, who.user_id):
                raise NotFound("you have no session with this id")
            await note(tx, AuditKind.SIGN_OUT, self.clock(), who, session_id=session_id)
        self.ended(session_id)

    async def end_other_sessions(self, who: Principal) -> None:
        who.must_be_present()
        async with self.database.transaction() as tx:
            await hold_user(tx, who, self.clock())
            gone = await sessions.delete_sessions_of(tx, who.user_id, but=who.bearer_id)
            if gone:
                await note(tx, AuditKind.SIGN_OUT, self.clock(), who, sessions=len(gone))
        for session_id in gone:
            self.ended(session_id)

    async def change_password(self, who: Principal, current: str, new: str, *, address: str) -> None:
        """Change the password, end all other sessions and revoke all API tokens. The old password then gives no access."""
        who.must_be_present()
        async with self.lockout.attempt(who.username, address) as attempt:
            async with self.database.transaction() as tx:
                known = await users.credentials_by_id(tx, who.user_id)
            stored = known.password_hash if known else None
            if not await self.passwords.verify(stored, current, familiar=True):
                await self._note_failure(known, address, attempt, "wrong current password")
                raise Denied("the current password is wrong")
            await self.lockout.forgive(who.username, address)
        hashed = await self.passwords.hash(new)
        async with self.database.transaction() as tx:
            await hold_user(tx, who, self.clock())
            now_known = await users.credentials_by_id(tx, who.user_id)
            if now_known is None or now_known.password_hash != stored:
                raise Denied("the password was changed meanwhile: sign in with the new one")
            await users.set_password(tx, who.user_id, hashed, self.clock())
            gone = await sessions.delete_sessions_of(tx, who.user_id, but=who.bearer_id)
            gone += await sessions.delete_tokens_of(tx, who.user_id)
            await note(tx, AuditKind.PASSWORD_CHANGED, self.clock(), who, ended=len(gone))
        for bearer_id in gone:
            self.ended(bearer_id)

    async def mint_token(
        self, who: Principal, name: str, expires_in_days: int | None, workspace_id: str | None = None
    ) -> MintedToken:
        """`workspace_id` restricts the token to one of the user's own workspaces."""
        who.must_be_present()
        now = self.clock()
        secret = new_token()
        until = None if expires_in_days is None else now + timedelta(days=expires_in_days)
        token = Token(self.ids(), who.user_id, name, now, until, None, workspace_id)
        async with self.database.transaction() as tx:
            await hold_user(tx, who, now)
            if workspace_id is not None:
                owned = await workspaces.get(tx, workspace_id) if is_id(workspace_id) else None
                if owned is None or owned.workspace.owner_user_id != who.user_id or owned.workspace.deleted_at:
                    raise WorkspaceNotFound("you have no such workspace")
            if (await sessions.tokens_of(tx, who.user_id, 0, 0))[1] >= MAX_TOKENS:
                raise Conflict(f"you have {MAX_TOKENS} API tokens, the maximum: revoke one first")
            await sessions.insert_token(tx, token, hash_secret(secret))
            expires = None if until is None else until.isoformat()
            await note(
                tx,
                AuditKind.TOKEN_CREATED,
                now,
                who,
                target=name,
                workspace_id=workspace_id,
                id=token.id,
                expires=expires,
            )
        return MintedToken(token, secret)

    async def list_tokens(self, who: Principal, limit: int, offset: int) -> tuple[list[Token], int]:
        async with self.database.transaction() as tx:
            return await sessions.tokens_of(tx, who.user_id, limit, offset)

    async def delete_token(self, who: Principal, token_id: str) -> None:
        """Delete a token. A token may delete itself, but no other token."""
        if who.token_id != token_id:
            who.must_be_present()
        async with self.database.transaction() as tx:
            if not is_id(token_id) or not await sessions.delete_token(tx, token_id, who.user_id):
                raise NotFound("you have no API token with this id")
            await note(tx, AuditKind.TOKEN_REVOKED, self.clock(), who, id=token_id)
        self.ended(token_id)


def _as(user: User, session_id: str) -> Principal:
    """Return the principal of a user who just signed in, for the audit trail."""
    return Principal(user.id, user.username, user.is_admin, session_id, by_token=False, expires_at=None)


def _principal(bearer: Bearer, *, by_token: bool) -> Principal:
    return Principal(
        bearer.user_id,
        bearer.username,
        # A token of one workspace is for programs in it: it has no rights beyond it, whoever made it.
        bearer.is_admin and bearer.workspace_id is None,
        bearer.id,
        by_token=by_token,
        expires_at=bearer.expires_at,
        token_id=bearer.token_id,
        workspace_id=bearer.workspace_id,
    )
