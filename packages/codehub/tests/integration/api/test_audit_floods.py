"""Neither a user nor a stranger fills the database by repeating what is recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from codehub.adapters.postgres import audit as statements
from codehub.adapters.postgres.pool import Database
from codehub.api import app
from codehub.domain.audit import AuditEvent, AuditFilter, AuditKind
from codehub.services.audit import BY_LINK, COMMAND_LINE, NOBODY, SYSTEM, Audit
from testing.codehub.api import Api

KEPT = 1_000
# Adds as many events of a kind.
_ADD = """
    INSERT INTO audit_events (at, event, actor, actor_id, address, target, detail)
    SELECT now(), %s, %s, %s, '', number::text, '{}' FROM generate_series(1, %s) AS number
"""


async def test_the_newest_events_of_each_kind_and_user_stay_and_it_is_recorded_that_others_went(
    api: Api, database: Database
) -> None:
    await api.user("ada")
    await api.user("bob")
    async with database.transaction() as tx:
        ids = {row["username"]: row["id"] for row in await (await tx.execute("SELECT * FROM users")).fetchall()}
        for actor, event, number in (
            ("bob", "token.created", 5),
            ("ada", "token.created", 5),
            ("ada", "secret.set", KEPT + 30),
            ("admin", "secret.set", KEPT + 30),
            (NOBODY, "sign_in.failed", KEPT + 7),
            (BY_LINK, "port.opened", KEPT + 3),
            (COMMAND_LINE, "user.password_reset", KEPT + 7),
            (SYSTEM, "audit.purged", KEPT + 7),
        ):
            await tx.execute(_ADD, [event, actor, ids.get(actor), number])
    now = datetime.now(UTC)
    audit = Audit(database, lambda: now, timedelta(days=365), KEPT)
    assert sum(await asyncio.gather(audit.sweep(), audit.sweep())) == 40, "two processes do not count the same ones"

    async def left(actor: str, event: str) -> list[str]:
        async with database.transaction() as tx:
            which = AuditFilter(actor=actor, event=event)
            return [each.target for each in await statements.oldest_first(tx, which, after=0, limit=10_000)]

    assert await left("ada", "secret.set") == [str(number) for number in range(31, KEPT + 31)]
    assert (await left(NOBODY, "sign_in.failed"))[-KEPT:] == [str(number) for number in range(8, KEPT + 8)]
    assert len(await left("ada", "token.created")) == 5, "nobody pushes out what else they did"
    assert len(await left("bob", "token.created")) == 5
    assert len(await left("admin", "secret.set")) == KEPT + 30
    assert len(await left(COMMAND_LINE, "user.password_reset")) == KEPT + 7
    assert len(await left(SYSTEM, "audit.purged")) == KEPT + 7
    async with database.transaction() as tx:
        noted = await statements.oldest_first(tx, AuditFilter(event=AuditKind.DROPPED), after=0, limit=10)
    assert {(each.target, each.detail["event"], each.detail["events"]) for each in noted} == {
        ("ada", "secret.set", 30),
        (NOBODY, "sign_in.failed", 7),
        (BY_LINK, "port.opened", 3),
    }


@pytest.mark.parametrize(
    "attack",
    [
        "SELECT set_config('codehub.audit_kept', '0', false); DELETE FROM audit_events",
        "SELECT set_config('codehub.audit_kept', '1000', false); DELETE FROM audit_events",
        "SELECT set_config('codehub.audit_kept', '1000', false); SET session_replication_role = replica; "
        "DELETE FROM audit_events",
        "SELECT set_config('codehub.audit_kept', '1000', false); UPDATE audit_events SET actor = 'x'",
        "SELECT set_config('codehub.audit_kept', '1000', false); "
        "DELETE FROM audit_events WHERE id > (SELECT min(id) FROM audit_events WHERE actor = 'ada')",
    ],
)
async def test_no_more_than_the_surplus_can_be_deleted(database_url: str, database: Database, attack: str) -> None:
    async with database.transaction() as tx:
        await statements.record(tx, AuditEvent(datetime.now(UTC), "sign_in.succeeded", "ada"))
        await tx.execute(_ADD, ["secret.set", "ada", None, KEPT + 1])
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            connection.execute(attack)
        assert connection.execute("SELECT count(*) FROM audit_events").fetchone() == (KEPT + 2,)


async def test_guesses_that_are_turned_away_leave_nothing_in_the_database(api: Api, database: Database) -> None:
    """Each for another name, from one address. Beyond the queue, each left two rows, as fast as the database took them."""
    lockout = api.app.state.context.accounts.lockout
    go_on = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await go_on.wait()

    lockout.sleep = sleep
    stranger = api.client(address="203.0.113.9")

    async def guess(number: int) -> int:
        wrong = {"username": f"name{number}", "password": "x"}
        return (await stranger.post("/api/v1/login", json=wrong)).status_code

    async def rows() -> int:
        async with database.transaction() as tx:
            found = await (await tx.execute("SELECT count(*) AS n FROM login_failures")).fetchone()
        assert found is not None
        return int(found["n"])

    assert {await guess(number) for number in range(50)} == {401}
    queued = [asyncio.ensure_future(guess(number)) for number in range(50, 70)]
    try:
        async with asyncio.timeout(120):
            while sum(task.done() for task in queued) < 12:  # eight wait, all others are turned away
                await asyncio.wait([task for task in queued if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        before = await rows()
        assert [await guess(number) for number in range(100, 140)] == [429] * 40
        assert await rows() == before
    finally:
        go_on.set()
        await asyncio.gather(*queued)


async def test_old_failures_are_forgotten_also_where_nobody_signs_in(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.transaction() as tx:
        for name, days in (("old", 2), ("new", 0)):
            await tx.execute(
                "INSERT INTO login_failures VALUES (%s, '203.0.113.9', 1, NULL, %s)",
                [name, datetime.now(UTC) - timedelta(days=days)],
            )
    monkeypatch.setattr(app, "_SWEEP_EVERY_S", 0.01)
    sweeping = asyncio.create_task(app._sweep(api.app.state.context))
    try:
        async with asyncio.timeout(120), database.statement() as tx:
            while True:
                rows = await (await tx.execute("SELECT username FROM login_failures")).fetchall()
                if [row["username"] for row in rows] == ["new"]:
                    break
                await asyncio.sleep(0.05)
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])
