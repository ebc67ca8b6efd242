"""The audit trail: what is in it, who reads it, and that nobody changes it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx
import psycopg
import pytest
from argon2 import PasswordHasher

from codehub.adapters.postgres import audit as statements
from codehub.adapters.postgres.pool import Database
from codehub.domain.audit import AuditEvent, AuditFilter
from codehub.domain.errors import CodeHubError
from codehub.services.audit import Audit
from testing.codehub.api import ADMIN, Api, running_api


async def trail(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get("/api/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def test_what_happened_is_there_with_who_and_from_where(api: Api) -> None:
    stranger = api.client(address="203.0.113.9")
    for _ in range(5):
        await stranger.post("/api/v1/login", json={"username": "admin", "password": "a secret typo"})
    await stranger.post("/api/v1/login", json={"username": "my-password-here", "password": "x"})
    admin = await api.signed_in()
    ada = (await admin.post("/api/v1/users", json={"username": "ada", "password": "ada-ada-ada"})).json()
    await admin.patch(f"/api/v1/users/{ada['id']}", json={"is_admin": True})
    await admin.patch(f"/api/v1/users/{ada['id']}", json={"password": "another-one-1"})
    minted = (await admin.post("/api/v1/tokens", json={"name": "ci"})).json()
    await admin.delete(f"/api/v1/tokens/{minted['id']}")
    await admin.delete(f"/api/v1/users/{ada['id']}")

    items = (await trail(admin, limit=100))[::-1]
    events = [(item["event"], item["actor"], item["target"]) for item in items]
    assert events == [
        ("user.created", "(system)", "admin"),
        *[("sign_in.failed", "(not signed in)", "admin")] * 5,
        ("sign_in.locked_out", "(not signed in)", "admin"),
        ("sign_in.failed", "(not signed in)", ""),
        ("sign_in.succeeded", "admin", ""),
        ("user.created", "admin", "ada"),
        ("user.changed", "admin", "ada"),
        ("user.password_reset", "admin", "ada"),
        ("token.created", "admin", "ci"),
        ("token.revoked", "admin", ""),
        ("user.deleted", "admin", "ada"),
    ]
    assert {item["address"] for item in items if item["event"].startswith("sign_in.f")} == {"203.0.113.9"}
    assert next(item for item in items if item["event"] == "user.changed")["detail"] == {"is_admin": True}
    whole = json.dumps(items)
    for secret in ("a secret typo", "my-password-here", "another-one-1", minted["token"], ADMIN[1]):
        assert secret not in whole


async def test_what_administrators_do_to_others_workspaces_is_there_and_reading_is_noted_once(api: Api) -> None:
    ada = await api.user("ada")
    bob = await api.user("bob")
    made = (await ada.post("/api/v1/workspaces", json={"name": "api", "start": False})).json()
    path = f"/api/v1/workspaces/{made['id']}"
    admin = await api.signed_in()
    for _ in range(5):
        assert (await admin.get(path)).status_code == 200
        assert (await bob.get(path)).status_code == 403
    assert (await ada.patch(path, json={"memo": "mine"})).status_code == 200
    assert (await admin.patch(path, json={"memo": "seen"})).status_code == 200
    assert (await admin.post(f"{path}:transfer", json={"username": "bob"})).status_code == 202
    items = (await trail(admin, workspace_id=made["id"]))[::-1]
    assert [(item["event"], item["actor"]) for item in items] == [
        ("workspace.read", "admin"),
        ("workspace.refused", "bob"),
        ("workspace.changed", "admin"),
        ("workspace.transferred", "admin"),
    ]
    assert items[-1]["detail"]["message"] == "transferred to bob"
    assert await trail(admin, actor="bob", event="workspace.*") == [items[1]]


async def test_only_administrators_read_it_and_a_token_for_one_workspace_does_not(api: Api) -> None:
    assert (await api.client().get("/api/v1/audit")).status_code == 401
    assert (await (await api.user("ada")).get("/api/v1/audit")).status_code == 403
    admin = await api.signed_in()
    workspace = (await admin.post("/api/v1/workspaces", json={"name": "one", "start": False})).json()["id"]
    for body, status in (({"name": "siem"}, 200), ({"name": "one", "workspace_id": workspace}, 403)):
        token = (await admin.post("/api/v1/tokens", json=body)).json()["token"]
        answer = await api.client(authorization=f"Bearer {token}").get("/api/v1/audit")
        assert answer.status_code == status


async def test_pages_follow_each_other_without_gap_and_lines_are_json(api: Api) -> None:
    admin = await api.signed_in()
    for number in range(7):
        await admin.post("/api/v1/tokens", json={"name": f"n{number}"})
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3, "event": "token.created"}
    while True:
        page = (await admin.get("/api/v1/audit", params=query)).json()
        seen += [item["target"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == [f"n{number}" for number in reversed(range(7))]
    answer = await admin.get(
        "/api/v1/audit", params={"after": 0, "event": "token.*"}, headers={"Accept": "application/x-ndjson"}
    )
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["target"] for line in answer.text.splitlines()] == seen[::-1]
    since = datetime.now(UTC) + timedelta(hours=1)
    assert await trail(admin, since=since.isoformat()) == []
    for wrong in ({"limit": 0}, {"cursor": -1}, {"since": "yesterday"}, {"what": 1}, {"cursor": 2**64}):
        assert (await admin.get("/api/v1/audit", params=wrong)).status_code == 400


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE audit_events SET actor = 'somebody else'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "SELECT set_config('codehub.audit_retention_s', '0', false); DELETE FROM audit_events",
        "SELECT set_config('codehub.audit_retention_s', '86400', false); DELETE FROM audit_events",
        "SET session_replication_role = replica; DELETE FROM audit_events",
    ],
)
async def test_the_table_refuses_every_change(api: Api, database_url: str, attack: str) -> None:
    await api.signed_in()
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            connection.execute(attack)
        assert connection.execute("SELECT count(*) > 0 FROM audit_events").fetchone() == (True,)


async def test_events_older_than_the_retention_go_and_that_is_noted(api: Api, database: Database) -> None:
    now = datetime.now(UTC)
    async with database.transaction() as tx:
        for days in (400, 370, 300):
            await statements.record(tx, AuditEvent(now - timedelta(days=days), "sign_in.failed", f"{days} days ago"))
    audit = Audit(database, lambda: now, timedelta(days=365))
    assert await audit.sweep() == 2
    assert await audit.sweep() == 0
    async with database.transaction() as tx:
        left = await statements.oldest_first(tx, AuditFilter(), after=0, limit=100)
    assert "300 days ago" in {event.actor for event in left}
    assert [event.detail["events"] for event in left if event.event == "audit.purged"] == [2]


async def test_following_by_id_misses_no_event_of_a_slow_transaction(database: Database) -> None:
    """A later event does not become visible before an earlier one."""
    now = datetime.now(UTC)
    inserted, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        async with database.transaction() as tx:
            await statements.record(tx, AuditEvent(now, "a", "slow"))
            inserted.set()
            await go_on.wait()

    async def quick() -> None:
        async with database.transaction() as tx:
            await statements.record(tx, AuditEvent(now, "a", "quick"))

    first = asyncio.create_task(slow())
    await inserted.wait()
    second = asyncio.create_task(quick())
    done, _ = await asyncio.wait([second], timeout=0.5)
    assert not done, "it waits for the one before it"
    go_on.set()
    await asyncio.gather(first, second)
    async with database.transaction() as tx:
        found = await statements.oldest_first(tx, AuditFilter(event="a"), after=0, limit=10)
    assert [event.actor for event in found] == ["slow", "quick"]


async def test_a_change_that_fails_leaves_no_event(api: Api) -> None:
    admin = await api.signed_in()
    me = (await admin.get("/api/v1/session")).json()["user"]["id"]
    assert (await admin.patch(f"/api/v1/users/{me}", json={"is_admin": False})).status_code == 409
    assert await trail(admin, event="user.changed") == []


async def test_guessing_from_made_up_addresses_is_slowed_down_and_the_owner_gets_in(database: Database) -> None:
    """200 wrong passwords at once, each from another address, as a trusted proxy's forged header would say."""
    trusted = (ipaddress.ip_network("127.0.0.0/8"),)
    slept: list[float] = []
    refused = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await refused.wait()  # the queue is full by then, however slow this machine is

    async with running_api(database, config={"trusted_proxies": trusted}) as api:
        lockout = api.app.state.context.accounts.lockout
        lockout.sleep = sleep
        home = api.client(x_forwarded_for="198.51.100.1")
        login = {"username": ADMIN[0], "password": ADMIN[1]}
        assert (await home.post("/api/v1/login", json=login)).status_code == 200

        async def guess(number: int) -> int:
            client = api.client(x_forwarded_for=f"192.0.2.{number}")
            wrong = {"username": ADMIN[0], "password": f"guess {number}"}
            status = (await client.post("/api/v1/login", json=wrong)).status_code
            if status == 429:
                refused.set()
            return status

        answers = await asyncio.gather(*(guess(number) for number in range(200)))
        assert set(answers) <= {401, 429}
        assert answers.count(401) < 200, "a crowd is sent away"
        assert max(slept) >= 0.5
        # The owner where they signed in before does not wait; elsewhere they wait, and are let in.
        slept.clear()
        assert (await home.post("/api/v1/login", json=login)).status_code == 200
        assert slept == []
        elsewhere = api.client(x_forwarded_for="198.51.100.2")
        assert (await elsewhere.post("/api/v1/login", json=login)).status_code == 200
        assert len(slept) == 1


async def test_guesses_that_fill_the_queue_of_password_checks_do_not_keep_the_owner_waiting(
    database: Database,
) -> None:
    """Each for another account and from another address, so that none of them is slowed down."""
    trusted = (ipaddress.ip_network("127.0.0.0/8"),)
    held, end = threading.Semaphore(0), threading.Event()

    class Hasher(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            if str(password).startswith("guess"):
                held.release()
                end.wait(60)
            return super().verify(hash, password)

    async with running_api(database, config={"trusted_proxies": trusted}) as api:
        login = {"username": ADMIN[0], "password": ADMIN[1]}
        home = api.client(x_forwarded_for="198.51.100.1")
        assert (await home.post("/api/v1/login", json=login)).status_code == 200
        passwords = api.app.state.context.accounts.passwords
        passwords.hasher = Hasher(time_cost=1, memory_cost=8, parallelism=1)

        async def guess(number: int) -> int:
            client = api.client(x_forwarded_for=f"192.0.2.{number}")
            wrong = {"username": f"user{number}", "password": f"guess {number}"}
            return (await client.post("/api/v1/login", json=wrong)).status_code

        guesses = [asyncio.create_task(guess(number)) for number in range(80)]
        try:
            async with asyncio.timeout(120):
                await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)  # the queue is full: 429
                assert (await home.post("/api/v1/login", json=login)).status_code == 200
                changed = {"current_password": ADMIN[1], "new_password": "another password"}
                key = {"X-CodeHub-Session-Key": (await home.post("/api/v1/login", json=login)).json()["session_key"]}
                assert (await home.post("/api/v1/password", json=changed, headers=key)).status_code == 204
            assert held.acquire(blocking=False), "guesses are still being checked"
            assert not all(task.done() for task in guesses)
        finally:
            end.set()
        assert set(await asyncio.gather(*guesses)) == {401, 429}


async def test_a_proxy_with_a_secret_is_believed_only_with_it(database: Database) -> None:
    trusted = (ipaddress.ip_network("127.0.0.0/8"),)
    async with running_api(database, config={"trusted_proxies": trusted, "proxy_secret": "of the proxy"}) as api:
        for number in range(6):
            forged = api.client(x_forwarded_for=f"192.0.2.{number}", x_codehub_proxy_secret="guessed")
            await forged.post("/api/v1/login", json={"username": ADMIN[0], "password": "wrong"})
        login = {"username": ADMIN[0], "password": ADMIN[1]}
        forged = api.client(x_forwarded_for="192.0.2.99")
        assert (await forged.post("/api/v1/login", json=login)).status_code == 429, "all of them were one address"
        real = api.client(x_forwarded_for="198.51.100.1", x_codehub_proxy_secret="of the proxy")
        assert (await real.post("/api/v1/login", json=login)).status_code == 200


async def test_nothing_is_recorded_when_the_database_refuses_the_event(api: Api, database: Database) -> None:
    """Neither is the change made: they are one transaction."""
    admin = await api.signed_in()
    async with database.transaction() as tx:
        await tx.execute(
            "ALTER TABLE audit_events ADD CONSTRAINT no_tokens CHECK (event <> 'token.created') NOT VALID"
        )
    try:
        answer = await admin.post("/api/v1/tokens", json={"name": "unseen"})
    except (CodeHubError, psycopg.Error):
        pass
    else:
        assert answer.status_code >= 500
    async with database.transaction() as tx:
        await tx.execute("ALTER TABLE audit_events DROP CONSTRAINT no_tokens")
    assert (await admin.get("/api/v1/tokens")).json()["total"] == 0


async def test_templates_credentials_and_secrets_are_there_without_their_values(api: Api) -> None:
    admin = await api.signed_in()
    text = "[templates.web]\nports = [3000]\n"
    for _ in range(2):  # the second changes nothing
        assert (await admin.post("/api/v1/templates", json={"source": text})).status_code == 201
    assert (await admin.post("/api/v1/templates/web:archive")).status_code == 204
    body = {"host": "git.example.org", "token": "t0ken-value"}
    credential = (await admin.post("/api/v1/git-credentials", json=body)).json()
    assert (await admin.delete(f"/api/v1/git-credentials/{credential['id']}")).status_code == 204
    assert (await admin.post("/api/v1/git-key", json={"replace": False})).status_code < 300
    assert (await admin.post("/api/v1/git-key", json={"replace": False})).status_code < 300
    assert (await admin.delete("/api/v1/git-key")).status_code == 204
    assert (await admin.put("/api/v1/secrets/API", json={"value": "s3cret-value"})).status_code < 300
    assert (await admin.delete("/api/v1/secrets/API")).status_code == 204
    items = (await trail(admin, limit=100))[::-1][2:]
    assert [(item["event"], item["target"], item["detail"]) for item in items] == [
        ("template.pushed", "web", {"version": 1}),
        ("template.archived", "web", {}),
        ("git_credential.added", "https://git.example.org", {}),
        ("git_credential.removed", "https://git.example.org", {}),
        ("git_key.made", "", {}),
        ("git_key.removed", "", {}),
        ("secret.set", "API", {"given_as": "env"}),
        ("secret.removed", "API", {}),
    ]
    assert "value" not in json.dumps(items)
