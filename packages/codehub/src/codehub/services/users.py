"""User management by administrators. At least one administrator who can sign in always remains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codehub.adapters.postgres import sessions, users
from codehub.adapters.postgres.pool import Database, Transaction
from codehub.domain.accounts import User
from codehub.domain.audit import AuditKind
from codehub.domain.errors import Conflict, Invalid, NotFound
from codehub.domain.ids import is_id
from codehub.services.audit import COMMAND_LINE, SYSTEM, note
from codehub.services.passwords import LONGEST, SHORTEST, Passwords
from codehub.services.principal import Clock, Ids, Principal


@dataclass(frozen=True, slots=True)
class UserChange:
    """None leaves a field unchanged."""

    password: str | None = None
    is_admin: bool | None = None
    disabled: bool | None = None


@dataclass(frozen=True, slots=True)
class Users:
    database: Database
    passwords: Passwords
    clock: Clock
    ids: Ids
    ended: Callable[[str], None]
    # The reason why this installation allows no second user, if so: without isolation, users could read each other's homes.
    second_user_refused: Callable[[], str | None]

    async def page(self, who: Principal, limit: int, offset: int) -> tuple[list[User], int]:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            return await users.page(tx, limit, offset)

    async def get(self, who: Principal, user_id: str) -> User:
        who.must_be_admin()
        async with self.database.transaction() as tx:
            return await _found(tx, user_id)

    async def create(self, who: Principal, username: str, password: str, *, is_admin: bool) -> User:
        who.must_be_admin()
        who.must_be_present()
        if (why := self.second_user_refused()) is not None:
            raise Conflict(why)
        return await self._insert(username, password, who, is_admin=is_admin)

    async def ensure_first_admin(self, username: str, password: str) -> bool:
        """Create the first user if there is none, and return whether one was created. A restart never resets anything."""
        async with self.database.transaction() as tx:
            if await users.count(tx):
                return False
        try:
            await self._insert(username, password, None, is_admin=True)
        except Conflict:
            return False  # another process was faster
        return True

    async def reset(self, username: str, password: str) -> None:
        """Reset a user's password and end all sessions and tokens. For operators with direct access to the database."""
        if not SHORTEST <= len(password) <= LONGEST:
            raise Invalid(f"a password must have {SHORTEST} to {LONGEST} characters")
        hashed = await self.passwords.hash(password)
        now = self.clock()
        async with self.database.transaction() as tx:
            found = await users.credentials(tx, username)
            if found is None:
                raise NotFound(f"there is no user named {username!r}")
            user = found.user
            await users.set_flags(tx, user.id, is_admin=user.is_admin, disabled_at=None, now=now)
            await users.set_password(tx, user.id, hashed, now)
            gone = await sessions.delete_sessions_of(tx, user.id, but=None)
            gone += await sessions.delete_tokens_of(tx, user.id)
            await note(tx, AuditKind.PASSWORD_RESET, now, actor=COMMAND_LINE, target=username)
        for session_id in gone:
            self.ended(session_id)

    async def change(self, who: Principal, user_id: str, change: UserChange) -> User:
        who.must_be_admin()
        who.must_be_present()
        hashed = None if change.password is None else await self.passwords.hash(change.password)
        now = self.clock()
        gone: list[str] = []
        async with self.database.transaction() as tx:
            admins = await users.lock_all_admins(tx)
            before = await _found(tx, user_id)
            is_admin = before.is_admin if change.is_admin is None else change.is_admin
            disabled_at = before.disabled_at
            if change.disabled is not None and change.disabled != (before.disabled_at is not None):
                disabled_at = now if change.disabled else None
            if not is_admin or disabled_at is not None:
                _keep_one(admins - {user_id})
            await users.set_flags(tx, user_id, is_admin=is_admin, disabled_at=disabled_at, now=now)
            if hashed is not None:
                await users.set_password(tx, user_id, hashed, now)
            if hashed is not None or disabled_at is not None:
                own = who.bearer_id if who.user_id == user_id else None
                gone = await sessions.delete_sessions_of(tx, user_id, but=own)
            if hashed is not None:
                gone += await sessions.delete_tokens_of(tx, user_id)
            after = await _found(tx, user_id)
            if hashed is not None:
                await note(tx, AuditKind.PASSWORD_RESET, now, who, target=after.username)
            if (changed := _difference(before, after)) or hashed is None:
                await note(tx, AuditKind.USER_CHANGED, now, who, target=after.username, detail=changed)
        for session_id in gone:
            self.ended(session_id)
        return after

    async def delete(self, who: Principal, user_id: str) -> None:
        who.must_be_admin()
        who.must_be_present()
        async with self.database.transaction() as tx:
            admins = await users.lock_all_admins(tx)
            await _found(tx, user_id)
            await users.lock(tx, user_id)
            user = await _found(tx, user_id)
            if user_id == who.user_id:
                raise Conflict("you cannot delete yourself: ask another administrator")
            _keep_one(admins - {user_id})
            if user.workspaces:
                raise Conflict(
                    f"{user.username} owns {user.workspaces} workspace{'s' if user.workspaces > 1 else ''}: "
                    f"`codehub admin users offboard {user.username}` hands them on first"
                )
            if await users.unpurged_workspaces(tx, user_id):
                raise Conflict(
                    f"{user.username} has deleted workspaces that can still be undeleted: "
                    "try again after CODEHUB_DELETED_RETENTION"
                )
            gone = await sessions.delete_sessions_of(tx, user_id, but=None)
            await users.hand_over_tombstones(tx, user_id, who.user_id)
            await users.delete(tx, user_id)
            await note(tx, AuditKind.USER_DELETED, self.clock(), who, target=user.username)
        for session_id in gone:
            self.ended(session_id)

    async def _insert(self, username: str, password: str, who: Principal | None, *, is_admin: bool) -> User:
        hashed = await self.passwords.hash(password)
        user_id = self.ids()
        async with self.database.transaction() as tx:
            if not await users.insert(
                tx, user_id=user_id, username=username, password_hash=hashed, is_admin=is_admin, now=self.clock()
            ):
                raise Conflict(f"a user named {username!r} already exists")
            made = await _found(tx, user_id)
            await note(
                tx, AuditKind.USER_CREATED, self.clock(), who, actor=SYSTEM, target=username, is_admin=is_admin
            )
            return made


def _difference(before: User, after: User) -> dict[str, bool]:
    found: dict[str, bool] = {}
    if before.is_admin != after.is_admin:
        found["is_admin"] = after.is_admin
    if (before.disabled_at is None) != (after.disabled_at is None):
        found["disabled"] = after.disabled_at is not None
    return found


async def _found(tx: Transaction, user_id: str) -> User:
    user = await users.get(tx, user_id) if is_id(user_id) else None
    if user is None:
        raise NotFound("there is no such user")
    return user


def _keep_one(others: set[str]) -> None:
    if not others:
        raise Conflict("this is the last administrator who can sign in: create another one first")
