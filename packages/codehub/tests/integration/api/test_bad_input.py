"""Bad input: a clear error, and nothing changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import structlog
from structlog.testing import capture_logs

from codehub.adapters.postgres.pool import Database
from codehub.api.middleware import MAX_BODY_BYTES
from testing.codehub.api import PUBLIC, Api, listening, running_api

W = "/api/v1/workspaces"
JSON = {"content-type": "application/json"}
TRICKS = ["'; DROP TABLE workspaces; --", "../../../etc/passwd", "%(id)s", "{0}", "$1", "\\", "🦀 " * 20, "<script>"]


async def count_of(database: Database, table: str) -> int:
    async with database.transaction() as tx:
        row = await (await tx.execute(f"SELECT count(*) AS n FROM {table}".encode())).fetchone()
    assert row is not None
    return int(row["n"])


WRONG_CREATES = [
    (b"", "JSON body is required"),
    (b"{", "not valid JSON"),
    (b'{"name": "x",}', "not valid JSON"),
    (b"\xff\xfe{}", ""),
    (b"[" * 50_000, ""),
    (b'{"name": ' + b"9" * 5_000 + b"}", ""),
    (b"[]", ""),
    (b'"text"', ""),
    (b"null", ""),
    (b"{}", "name: required"),
    (b'{"name": null}', "name"),
    (b'{"name": 5}', "name"),
    (b'{"name": ["x"]}', "name"),
    (b'{"name": NaN}', "name"),
    (b'{"name": ""}', "name"),
    (b'{"name": "   "}', "name: must not be blank"),
    (b'{"name": "a\\u0000b"}', "name: must not contain control characters"),
    (b'{"name": "a\\nb"}', "name: must not contain control characters"),
    (b'{"name": "a\\u009bb"}', "name: must not contain control characters"),
    (b'{"name": "a\\ud800b"}', "name"),
    (b'{"name": "' + b"x" * 256 + b'"}', "name"),
    (b'{"name": "x", "colour": 1}', "colour: unknown field"),
    (b'{"name": "x", "start": "yes"}', "start"),
    (b'{"name": "x", "start": 1}', "start"),
    (b'{"name": "x", "description": "a\\u0007"}', "description"),
    (b'{"name": "x", "description": "' + b"y" * 4_097 + b'"}', "description"),
    (b'{"name": "x", "memo": "a\\u0000"}', "memo"),
    (b'{"name": "x", "image_ref": "' + b"i" * 513 + b'"}', "image_ref"),
]


async def test_a_create_that_is_wrong_is_refused_by_name_and_makes_nothing(api: Api) -> None:
    admin = await api.signed_in()
    for body, said in WRONG_CREATES:
        answer = await admin.post(W, content=body, headers=JSON)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "INVALID_REQUEST"
        assert said in error["message"]
        assert (await admin.get(W)).json()["total"] == 0


async def test_strings_full_of_tricks_are_kept_as_they_are(api: Api) -> None:
    ada = await api.user("tricky")
    for trick in TRICKS:
        body = {"name": trick, "description": trick, "memo": f"{trick}\n\t", "start": False}
        made = await ada.post(W, json=body)
        assert made.status_code == 201
        assert (made.json()["name"], made.json()["memo"]) == (trick, f"{trick}\n\t")
        assert (await ada.post("/api/v1/login", json={"username": trick[:64], "password": trick})).status_code == 401
        assert (await ada.get(f"{W}/{trick}")).status_code == 404
        assert (await ada.post("/api/v1/tokens", json={"name": trick})).status_code == 201
    assert (await ada.get(W)).json()["total"] == len(TRICKS)


WRONG_FIELDS = [
    ("POST", "/api/v1/login", {"username": "x" * 65, "password": "y"}, "username"),
    ("POST", "/api/v1/login", {"username": "x"}, "password: required"),
    ("POST", "/api/v1/login", {"username": "x", "password": "a\u0000"}, "password"),
    ("POST", "/api/v1/login", {"username": "x", "password": "y", "remember": True}, "remember: unknown field"),
    ("POST", "/api/v1/users", {"username": "a b", "password": "12345678"}, "username"),
    ("POST", "/api/v1/users", {"username": "ok", "password": "short"}, "password"),
    ("POST", "/api/v1/users", {"username": "ok", "password": "12345678", "is_admin": "no"}, "is_admin"),
    ("POST", "/api/v1/tokens", {"name": "t", "expires_in_days": 0}, "expires_in_days"),
    ("POST", "/api/v1/tokens", {"name": "t", "expires_in_days": 1e99}, "expires_in_days"),
    ("POST", "/api/v1/password", {"current_password": "x", "new_password": "1234567"}, "new_password"),
    ("GET", f"{W}?colour=blue", None, "colour: unknown field"),
    ("GET", f"{W}?all=perhaps", None, "all"),
    ("GET", "/api/v1/events?since=1", None, "since: unknown field"),
]


async def test_every_field_is_checked_and_named(api: Api) -> None:
    admin = await api.signed_in()
    for method, path, body, said in WRONG_FIELDS:
        answer = await admin.request(method, path, json=body)
        assert answer.status_code == 400, answer.text
        assert said in answer.json()["error"]["message"]
        assert "12345678" not in answer.text


async def test_patches_are_checked_as_strictly(api: Api) -> None:
    ada = await api.user("patcher")
    ws = (await ada.post(W, json={"name": "keep", "start": False})).json()
    for body in (
        {"name": None},
        {"name": ""},
        {"name": "x" * 256},
        {"desired_state": "DELETED"},
        {"desired_state": "running"},
        {"status": "RUNNING"},
        {"owner_user_id": "x"},
        {"name": "new", "archive_key": "stolen"},
    ):
        answer = await ada.patch(f"{W}/{ws['id']}", json=body)
        assert answer.status_code == 400, body
    assert (await ada.get(f"{W}/{ws['id']}")).json() == ws


async def test_a_long_body_is_refused_before_it_is_read(api: Api) -> None:
    admin = await api.signed_in()
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 100 * MAX_BODY_BYTES:
            read += 65_536
            yield b" " * 65_536

    declared = await admin.post(W, content=b"{}", headers={**JSON, "content-length": str(100 << 20)})
    assert declared.status_code == 413
    assert declared.json()["error"]["code"] == "PAYLOAD_TOO_LARGE"
    assert (await admin.post(W, content=b"", headers={**JSON, "content-length": "9" * 400})).status_code == 413
    assert (await admin.post(W, content=b"", headers={**JSON, "content-length": "-1"})).status_code == 400
    chunked = await admin.post(W, content=endless(), headers=JSON)
    assert chunked.status_code == 413
    assert read <= MAX_BODY_BYTES + 2 * 65_536


async def test_a_hundred_megabytes_on_a_real_connection_are_answered_before_they_are_sent(api: Api) -> None:
    heads = [f"Content-Length: {100 << 20}", "Transfer-Encoding: chunked"]
    async with listening(api) as address:
        host, port = address.removeprefix("http://").split(":")
        for head in heads:
            reader, writer = await asyncio.open_connection(host, int(port))
            request = (
                f"POST /api/v1/login HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{head}\r\n\r\n"
            )
            writer.write(request.encode())
            if "chunked" in head:
                for _ in range(40):
                    writer.write(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
            async with asyncio.timeout(90):
                answer = await reader.readuntil(b"PAYLOAD_TOO_LARGE")
            assert answer.startswith(b"HTTP/1.1 413 ")
            writer.transport.abort()


NOT_JSON = [
    "",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonp",
]


async def test_bodies_are_json_only(api: Api) -> None:
    admin = await api.signed_in()
    body = json.dumps({"name": "x", "start": False}).encode()
    for content_type in NOT_JSON:
        answer = await admin.post(W, content=body, headers={"content-type": content_type})
        assert answer.status_code == 400
        assert "application/json" in answer.json()["error"]["message"]
    assert (await admin.get(W)).json()["total"] == 0


WRONG_ADDRESSES = [
    ("PUT", W, 405),
    ("DELETE", W, 405),
    ("GET", "/api/v1/login", 405),
    ("GET", f"{W}/x:start", 405),
    ("OPTIONS", W, 405),
    ("TRACE", W, 405),
    ("BREW", "/api/v1/session", 405),
    ("POST", f"{W}/x:explode", 404),
    ("GET", "/api/v1/nothing", 404),
    ("GET", "/api/v2/workspaces", 404),
    ("GET", f"{W}/", 404),
    ("GET", "/api/v1/../../etc/passwd", 404),
]


async def test_wrong_verbs_and_addresses_are_said_plainly(api: Api) -> None:
    admin = await api.signed_in()
    for method, path, status in WRONG_ADDRESSES:
        answer = await admin.request(method, path)
        assert answer.status_code == status, (method, path)
        assert answer.json()["error"]["code"] == {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}[status]


ORIGINS = [
    ({}, 201),
    ({"origin": PUBLIC}, 201),
    ({"origin": PUBLIC, "sec-fetch-site": "same-origin"}, 201),
    ({"sec-fetch-site": "none"}, 201),
    ({"origin": "http://localhost:8001"}, 403),
    ({"origin": "http://127.0.0.1:8000.evil.example"}, 403),
    ({"origin": "https://127.0.0.1:8000"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": ""}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"origin": PUBLIC, "sec-fetch-site": "cross-site"}, 403),
]


async def test_mutations_come_from_the_dashboards_own_origin(api: Api) -> None:
    admin = await api.signed_in()
    for headers, status in ORIGINS:
        before = (await admin.get(W)).json()["total"]
        answer = await admin.post(W, json={"name": "x", "start": False}, headers=headers)
        assert answer.status_code == status
        assert (await admin.get(W)).json()["total"] == before + (status == 201)
        for one in (answer.json().get("id"),) if status == 201 else ():
            await admin.delete(f"{W}/{one}", params={"force": "true"})
        login = await api.client().post(
            "/api/v1/login", json={"username": "admin", "password": "admin-password"}, headers=headers
        )
        assert login.status_code == (200 if status == 201 else 403)
        assert (await admin.get(W, headers=headers)).status_code == 200, "reading is not changing"


async def test_a_browser_under_another_name_is_sent_to_the_dashboards_own(api: Api) -> None:
    browser = {"host": "localhost:8000", "sec-fetch-mode": "navigate", "accept": "text/html"}
    client = api.client()
    page = await client.get("/?next=%2Fw%2Fx%2F", headers=browser)
    assert (page.status_code, page.headers["location"]) == (307, f"{PUBLIC}/?next=%2Fw%2Fx%2F")
    sly = await client.get("//evil.example/%2e%2e", headers=browser)
    assert sly.headers["location"].startswith(f"{PUBLIC}/")
    assert (await client.get("/api/v1/session", headers=browser)).status_code == 307
    assert (await client.get("/", headers={"host": "localhost:8000"})).status_code == 307
    script = await client.get("/api/v1/session", headers={"host": "localhost:8000"})
    assert script.status_code == 401, "scripts may use any name: they open no workspaces"
    assert (await client.get("/health", headers={"host": "10.0.0.7:8000"})).status_code == 200


async def test_answers_carry_a_request_id_and_what_browsers_obey(api: Api) -> None:
    client = api.client()
    for path in ("/api/v1/session", "/health", "/nothing", "/"):
        answer = await client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert len(answer.headers["x-request-id"]) >= 8
    assert (await client.get("/api/v1/session")).headers["cache-control"] == "no-store"
    kept = await client.get("/health", headers={"x-request-id": "from-the-proxy-1"})
    assert kept.headers["x-request-id"] == "from-the-proxy-1"
    replaced = await client.get("/health", headers={"x-request-id": "bad id\t"})
    assert replaced.headers["x-request-id"] != "bad id\t"


async def test_an_error_nobody_thought_of_is_a_500_that_tells_nothing(database: Database) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("with a secret inside")

    async with running_api(database, choose_backends=broken) as api:
        admin = await api.signed_in()
        with capture_logs() as logs:
            answer = await admin.post(W, json={"name": "x"})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "INTERNAL_ERROR"
        assert "secret" not in answer.text
        assert [entry["event"] for entry in logs] == ["request failed", "request"]
        assert "ZeroDivisionError" in logs[0]["traceback"]
    assert await count_of(database, "workspaces") == 0


async def test_no_secret_is_ever_logged(database: Database) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    async with running_api(database, choose_backends=broken) as api:
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
            ada = await api.user("ada")
            token = (await ada.post("/api/v1/tokens", json={"name": "t"})).json()["token"]
            await ada.post("/api/v1/password", json={"current_password": "ada-ada", "new_password": "second-secret"})
            await ada.post("/api/v1/login", json={"username": "ada", "password": "wrong-secret"})
            await ada.post("/api/v1/login", json={"username": "ada", "password": "leaky-secret", "x": 1})
            await api.client(authorization=f"Bearer {token}").post(W, json={"name": "fails"})
            await ada.get(f"/?codehub_ticket={token}")
        written = repr(logs)
        assert all(entry["request_id"] for entry in logs if entry["event"] == "request")
        cookie = ada.cookies["session"]
        for secret in (token, cookie, "ada-ada", "second-secret", "wrong-secret", "leaky-secret"):
            assert secret not in written
