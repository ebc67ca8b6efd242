"""User management directly on the database: the first admin of `up`, and a lost password."""

from __future__ import annotations

from codehub.adapters.postgres.pool import Database
from codehub.adapters.system_clock import SystemClock
from codehub.services.passwords import Passwords
from codehub.services.users import Users
from codehub.wiring import new_id


def users_of(database: Database) -> Users:
    """Ended sessions are not reported here: other processes notice them in the database within seconds."""
    return Users(database, Passwords(), SystemClock().now, new_id, lambda _: None, lambda: None)


async def reset_password(database_url: str, username: str, password: str) -> None:
    async with Database(database_url, max_connections=1) as database:
        await users_of(database).reset(username, password)
