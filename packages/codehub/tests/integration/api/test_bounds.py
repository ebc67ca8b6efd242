"""What a user can create is bounded, also by several requests at once."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx

from codehub.adapters.postgres import proxy_access
from codehub.adapters.postgres.pool import Database
from codehub.services.accounts import MAX_SESSIONS, MAX_TOKENS
from codehub.services.login_links import MAX_LINKS as MAX_LOGIN_LINKS
from codehub.services.ports import MAX_LINKS, MAX_SHARED
from codehub.services.ssh import MAX_KEYS
from testing.codehub.api import Api

W = "/api/v1/workspaces"
# Fills a table up to a number of rows of one user or workspace.
TOKENS = """
    INSERT INTO api_tokens (id, user_id, name, secret_hash)
    SELECT n::text, %(owner)s, 'token', sha256(n::text::bytea) FROM generate_series(1, %(most)s) AS n
"""
KEYS = """
    INSERT INTO ssh_keys (id, user_id, name, public_key, fingerprint, created_at)
    SELECT n::text, %(owner)s, 'key', 'key', n::text, now() FROM generate_series(1, %(most)s) AS n
"""
CREDENTIALS = """
    INSERT INTO git_credentials (id, user_id, scheme, host, username, sealed, created_at)
    SELECT n::text, %(owner)s, 'https', 'h' || n, 'git', '', now() FROM generate_series(1, %(most)s) AS n
"""
SECRETS = """
    INSERT INTO user_secrets (user_id, name, kind, sealed, bytes, updated_at)
    SELECT %(owner)s, 'S' || n, 'env', '', 1, now() FROM generate_series(1, %(most)s) AS n
"""
LOGIN_LINKS = """
    INSERT INTO login_links (secret_hash, user_id, expires_at)
    SELECT sha256(n::text::bytea), %(owner)s, now() + interval '1 hour' FROM generate_series(1, %(most)s) AS n
"""
SESSIONS = """
    INSERT INTO sessions (id, user_id, secret_hash, expires_at, created_at)
    SELECT 'old-' || n, %(owner)s, sha256(n::text::bytea), now() + interval '1 hour', now() - interval '1 hour'
    FROM generate_series(1, %(most)s) AS n
"""
PORTS = """
    INSERT INTO workspace_ports (workspace_id, port, share, changed_at)
    SELECT %(owner)s, n, 'users', now() FROM generate_series(1, %(most)s) AS n
"""
PORT_LINKS = """
    INSERT INTO port_links (id, secret_hash, workspace_id, port, created_at, expires_at)
    SELECT n::text, sha256(n::text::bytea), %(owner)s, 1, now(), now() + interval '1 hour'
    FROM generate_series(1, %(most)s) AS n
"""


async def fill(database: Database, statement: str, owner: str, most: int) -> None:
    async with database.transaction() as tx:
        await tx.execute(statement.encode(), {"owner": owner, "most": most})


async def count(database: Database, table: str) -> int:
    async with database.transaction() as tx:
        row = await (await tx.execute(f"SELECT count(*) AS n FROM {table}".encode())).fetchone()
    assert row is not None
    return int(row["n"])


async def id_of(client: httpx.AsyncClient) -> str:
    return str((await client.get("/api/v1/session")).json()["user"]["id"])


def key(number: int) -> str:
    raw = b"\0\0\0\x0bssh-ed25519" + b"\0\0\0\x20" + bytes([number]) * 32
    return "ssh-ed25519 " + base64.b64encode(raw).decode()


async def test_requests_at_once_do_not_exceed_a_users_limits(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    owner = await id_of(ada)
    numbers = range(8)
    asked: list[tuple[str, str, int, list[tuple[str, str, Any]]]] = [
        (
            "api_tokens",
            TOKENS,
            MAX_TOKENS,
            [("POST", "/api/v1/tokens", {"name": f"t{n}"}) for n in numbers],
        ),
        ("ssh_keys", KEYS, MAX_KEYS, [("POST", "/api/v1/keys", {"public_key": key(n)}) for n in numbers]),
        (
            "git_credentials",
            CREDENTIALS,
            100,
            [("POST", "/api/v1/git-credentials", {"host": f"new{n}.example", "token": "x"}) for n in numbers],
        ),
        ("user_secrets", SECRETS, 100, [("PUT", f"/api/v1/secrets/NEW{n}", {"value": "x"}) for n in numbers]),
    ]
    for table, statement, most, requests in asked:
        await fill(database, statement, owner, most - 1)
        answers = await asyncio.gather(*(ada.request(verb, path, json=body) for verb, path, body in requests))
        statuses = [answer.status_code for answer in answers]
        assert statuses.count(409) == len(requests) - 1, (table, statuses)
        assert await count(database, table) == most


async def test_a_credential_is_replaced_at_the_limit(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    await fill(database, CREDENTIALS, await id_of(ada), 100)
    replaced = await ada.post("/api/v1/git-credentials", json={"host": "h7", "token": "x"})
    assert replaced.status_code == 201, replaced.text


async def test_sign_in_links_that_nobody_opens_are_limited(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    await fill(database, LOGIN_LINKS, await id_of(ada), MAX_LOGIN_LINKS - 1)
    answers = await asyncio.gather(*(ada.post("/api/v1/login-links", json={}) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [429] * 7
    assert "retry-after" in next(answer.headers for answer in answers if answer.status_code == 429)


async def test_the_oldest_sessions_end_beyond_the_limit(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    await fill(database, SESSIONS, await id_of(ada), MAX_SESSIONS)
    again = await api.signed_in("ada", "ada-ada")
    assert await count(database, "sessions") == MAX_SESSIONS
    assert (await ada.get("/api/v1/session")).status_code == 200, "it is newer than those"
    assert (await again.get("/api/v1/session")).status_code == 200


async def test_shared_ports_and_their_links_are_limited(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    path = f"{W}/{(await ada.post(W, json={'name': 'one', 'start': False})).json()['id']}"
    workspace_id = path.rpartition("/")[2]
    await fill(database, PORTS, workspace_id, MAX_SHARED - 1)
    answers = await asyncio.gather(
        *(ada.patch(f"{path}/ports/{9000 + n}", json={"share": "users"}) for n in range(8))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    assert (await ada.patch(f"{path}/ports/1", json={"share": "link"})).status_code == 200, "it is shared already"
    await fill(database, PORT_LINKS, workspace_id, MAX_LINKS - 1)
    links = await asyncio.gather(*(ada.post(f"{path}/ports/1/links") for _ in range(8)))
    assert sorted(answer.status_code for answer in links) == [201] + [409] * 7
    assert (await ada.patch(f"{path}/ports/2", json={"share": "owner"})).status_code == 200
    assert await count(database, "workspace_ports") == MAX_SHARED - 1, "a port that is not shared takes no row"


async def test_a_browser_keeps_few_cookies_of_a_workspace(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    workspace_id = (await ada.post(W, json={"name": "one", "start": False})).json()["id"]
    session_id = (await ada.get("/api/v1/sessions")).json()["items"][0]["id"]
    names = {"session_id": session_id, "workspace_id": workspace_id}
    for number in range(30):
        async with database.transaction() as tx:
            await proxy_access.insert_proxy_session(tx, secret_hash=bytes([number]), now=api.clock(), **names)
    assert await count(database, "proxy_sessions") == 20
    async with database.transaction() as tx:
        assert await proxy_access.still_live(tx, [bytes([9]), bytes([29])], api.clock()) == {bytes([29])}
