"""Signing in and out, sessions, tokens, passwords, lock-out."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from codehub.adapters.postgres.pool import Database
from codehub.services.lockout import locked_for
from testing.codehub.api import ADMIN, Api, new_id, running_api

LOGIN = {"username": ADMIN[0], "password": ADMIN[1]}
WRONG = {"username": ADMIN[0], "password": "not it"}


async def test_a_login_sets_a_cookie_that_scripts_cannot_read_and_says_who_signed_in(api: Api) -> None:
    answer = await api.client().post("/api/v1/login", json=LOGIN)
    assert answer.status_code == 200
    assert answer.json()["user"]["username"] == "admin"
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("session=")
    for part in ("httponly", "samesite=lax", "max-age=86400", "path=/"):
        assert part in cookie
    assert "secure" not in cookie


async def test_under_https_the_cookie_is_host_bound_and_secure(database: Database) -> None:
    async with running_api(database, config={"public_url": "https://codehub.example.org"}) as api:
        answer = await api.client(host="codehub.example.org").post("/api/v1/login", json=LOGIN)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-session=")
        assert "Secure" in cookie
        assert "Domain" not in cookie


async def test_only_hashes_of_secrets_are_stored(api: Api, database: Database) -> None:
    admin = await api.signed_in()
    minted = (await admin.post("/api/v1/tokens", json={"name": "ci"})).json()
    assert minted["token"].startswith("cht_")
    secrets = [admin.cookies["session"], admin.headers["X-CodeHub-Session-Key"], minted["token"], ADMIN[1]]
    async with database.transaction() as tx:
        for table in ("users", "sessions", "api_tokens"):
            rows = await (await tx.execute(f"SELECT t::text AS whole FROM {table} t".encode())).fetchall()
            assert rows
            for row in rows:
                assert not any(secret in row["whole"] or secret[4:] in row["whole"] for secret in secrets)
        user = await (await tx.execute("SELECT password_hash FROM users")).fetchone()
    assert user is not None
    assert user["password_hash"].startswith("$argon2id$")


async def test_wrong_passwords_and_unknown_users_get_the_same_answer(api: Api) -> None:
    wrong = await api.client().post("/api/v1/login", json=WRONG)
    unknown = await api.client().post("/api/v1/login", json={"username": "nobody", "password": "not it"})
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()
    assert wrong.json()["error"]["code"] == "UNAUTHORIZED"


async def test_five_failures_lock_out_for_30_seconds_and_each_further_one_doubles_it(api: Api) -> None:
    client = api.client()
    for _ in range(5):
        assert (await client.post("/api/v1/login", json=WRONG)).status_code == 401
    locked = await client.post("/api/v1/login", json=LOGIN)
    assert locked.status_code == 429
    assert locked.json()["error"]["code"] == "TOO_MANY_REQUESTS"
    assert 1 <= int(locked.headers["retry-after"]) <= 30
    api.clock.forward(seconds=31)
    assert (await client.post("/api/v1/login", json=WRONG)).status_code == 401
    again = await client.post("/api/v1/login", json=LOGIN)
    assert again.status_code == 429
    assert 30 < int(again.headers["retry-after"]) <= 60
    api.clock.forward(seconds=61)
    assert (await client.post("/api/v1/login", json=LOGIN)).status_code == 200
    assert (await client.post("/api/v1/login", json=WRONG)).status_code == 401, "a success forgets the failures"


async def test_a_lock_out_is_of_one_user_at_one_address(api: Api) -> None:
    for _ in range(6):
        await api.client().post("/api/v1/login", json=WRONG)
    assert (await api.client().post("/api/v1/login", json=LOGIN)).status_code == 429
    assert (await api.client(address="192.0.2.7").post("/api/v1/login", json=LOGIN)).status_code == 200
    other = await api.client().post("/api/v1/login", json={"username": "other", "password": "x"})
    assert other.status_code == 401


async def test_a_hundred_guesses_at_once_are_checked_no_more_than_five_times(api: Api) -> None:
    client = api.client()
    answers = await asyncio.gather(*(client.post("/api/v1/login", json=WRONG) for _ in range(100)))
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 95


async def test_twenty_right_logins_at_once_do_not_lock_each_other_out(api: Api) -> None:
    client = api.client()
    answers = await asyncio.gather(*(client.post("/api/v1/login", json=LOGIN) for _ in range(20)))
    assert [answer.status_code for answer in answers] == [200] * 20


def test_the_lock_out_doubles_up_to_half_an_hour() -> None:
    seconds = [lock.total_seconds() if (lock := locked_for(n)) else 0 for n in (4, 5, 6, 7, 10, 11, 12, 10_000)]
    assert seconds == [0, 30, 60, 120, 960, 1800, 1800, 1800]


@pytest.mark.parametrize(("trusted", "locked"), [((), True), (("127.0.0.0/8",), False)])
async def test_a_forwarded_address_counts_only_from_a_trusted_proxy(
    database: Database, trusted: tuple[str, ...], locked: bool
) -> None:
    import ipaddress

    networks = tuple(ipaddress.ip_network(each) for each in trusted)
    async with running_api(database, config={"trusted_proxies": networks}) as api:
        for number in range(6):
            await api.client(x_forwarded_for=f"192.0.2.{number}").post("/api/v1/login", json=WRONG)
        answer = await api.client(x_forwarded_for="192.0.2.99").post("/api/v1/login", json=LOGIN)
        assert (answer.status_code == 429) is locked


async def test_a_session_ends_by_logout_by_time_and_by_disabling_its_user(api: Api) -> None:
    ada = await api.user("ada")
    cookie = ada.cookies["session"]
    assert (await ada.get("/api/v1/session")).status_code == 200
    assert (await ada.post("/api/v1/logout")).status_code == 204
    replayed = api.client(cookie=f"session={cookie}", x_codehub_session_key=ada.headers["X-CodeHub-Session-Key"])
    assert (await replayed.get("/api/v1/session")).status_code == 401

    bob = await api.user("bob")
    admin = await api.signed_in()
    bob_id = (await bob.get("/api/v1/session")).json()["user"]["id"]
    assert (await admin.patch(f"/api/v1/users/{bob_id}", json={"disabled": True})).status_code == 200
    assert (await bob.get("/api/v1/session")).status_code == 401
    refused = await api.client().post("/api/v1/login", json={"username": "bob", "password": "bob-bob"})
    assert refused.status_code == 401

    api.clock.forward(hours=24, seconds=1)
    assert (await admin.get("/api/v1/session")).status_code == 401


async def test_a_cookie_without_its_own_key_is_no_session(api: Api) -> None:
    """Another user's key, a guessed one, or none: cookies alone are heard by every listener on the dashboard's host."""
    ada, bob = await api.user("ada"), await api.user("bob")
    for key in (bob.headers["X-CodeHub-Session-Key"], "guessed", ""):
        thief = api.client(cookie=f"session={ada.cookies['session']}", x_codehub_session_key=key)
        assert (await thief.get("/api/v1/session")).status_code == 401
        assert (await thief.post("/api/v1/tokens", json={"name": "stolen"})).status_code == 401
    assert (await ada.get("/api/v1/tokens")).json()["total"] == 0


async def test_changing_the_password_ends_every_other_session(api: Api) -> None:
    here, there = await api.user("ada"), await api.signed_in("ada", "ada-ada")
    wrong = await here.post("/api/v1/password", json={"current_password": "no", "new_password": "new password"})
    assert wrong.status_code == 403
    body = {"current_password": "ada-ada", "new_password": "new password"}
    assert (await here.post("/api/v1/password", json=body)).status_code == 204
    assert (await here.get("/api/v1/session")).status_code == 200
    assert (await there.get("/api/v1/session")).status_code == 401
    await api.signed_in("ada", "new password")


async def test_one_sees_and_ends_only_ones_own_sessions(api: Api) -> None:
    ada, elsewhere = await api.user("ada"), await api.signed_in("ada", "ada-ada")
    admin = await api.signed_in()
    listed = (await ada.get("/api/v1/sessions")).json()
    assert listed["total"] == 2
    assert [item["current"] for item in listed["items"]].count(True) == 1
    other = next(item["id"] for item in listed["items"] if not item["current"])
    assert (await admin.delete(f"/api/v1/sessions/{other}")).status_code == 404
    assert (await ada.delete(f"/api/v1/sessions/{other}")).status_code == 204
    assert (await elsewhere.get("/api/v1/session")).status_code == 401
    assert (await ada.delete("/api/v1/sessions/../../etc")).status_code == 404


async def test_a_token_acts_for_its_user_but_mints_no_tokens_and_manages_no_users(api: Api) -> None:
    admin = await api.signed_in()
    minted = (await admin.post("/api/v1/tokens", json={"name": "ci", "expires_in_days": 1})).json()
    robot = api.client(authorization=f"Bearer {minted['token']}")
    assert (await robot.get("/api/v1/session")).json()["by_token"] is True
    assert (await robot.get("/api/v1/workspaces")).status_code == 200
    user_id = (await admin.get("/api/v1/session")).json()["user"]["id"]
    for method, path, body in (
        ("POST", "/api/v1/tokens", {"name": "more"}),
        ("POST", "/api/v1/users", {"username": "eve", "password": "eve-eve-eve"}),
        ("PATCH", f"/api/v1/users/{user_id}", {"password": "12345678"}),
        ("DELETE", f"/api/v1/users/{user_id}", None),
        ("POST", "/api/v1/password", {"current_password": ADMIN[1], "new_password": "12345678"}),
        ("POST", "/api/v1/logout", None),
        ("DELETE", "/api/v1/sessions", None),
    ):
        answer = await robot.request(method, path, json=body)
        assert answer.status_code == 403, (method, path, answer.text)
    assert (await robot.delete(f"/api/v1/tokens/{new_id()}")).status_code == 403
    api.clock.forward(days=1, seconds=1)
    assert (await robot.get("/api/v1/session")).status_code == 401


async def test_a_token_can_be_taken_back_by_its_owner_and_by_itself(api: Api) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    first = (await ada.post("/api/v1/tokens", json={"name": "first"})).json()
    second = (await ada.post("/api/v1/tokens", json={"name": "second"})).json()
    listed = (await ada.get("/api/v1/tokens")).json()
    assert {item["name"] for item in listed["items"]} == {"first", "second"}
    assert "token" not in listed["items"][0]
    assert (await bob.delete(f"/api/v1/tokens/{first['id']}")).status_code == 404
    assert (await ada.delete(f"/api/v1/tokens/{first['id']}")).status_code == 204
    robot = api.client(authorization=f"Bearer {second['token']}")
    assert (await robot.delete(f"/api/v1/tokens/{second['id']}")).status_code == 204
    assert (await robot.get("/api/v1/session")).status_code == 401


async def test_a_session_made_by_a_tokens_link_may_do_no_more_than_the_token(api: Api) -> None:
    ada = await api.user("ada")
    first = (await ada.post("/api/v1/tokens", json={"name": "first"})).json()
    second = (await ada.post("/api/v1/tokens", json={"name": "second"})).json()
    robot = api.client(authorization=f"Bearer {first['token']}")
    link = (await robot.post("/api/v1/login-links", json={})).json()["url"]
    browser = api.client(sec_fetch_site="none", sec_fetch_mode="navigate", sec_fetch_dest="document")
    page = await browser.get(link)
    assert page.status_code == 200
    browser.headers["X-CodeHub-Session-Key"] = page.text.partition('session-key" content="')[2].partition('"')[0]
    assert (await browser.get("/api/v1/session")).status_code == 200
    assert (await browser.post("/api/v1/tokens", json={"name": "more"})).status_code == 403
    assert (await browser.delete(f"/api/v1/tokens/{second['id']}")).status_code == 403
    assert (await browser.delete(f"/api/v1/tokens/{first['id']}")).status_code == 204
    assert (await browser.get("/api/v1/session")).status_code == 401, "it goes with its token"


async def test_a_wrong_token_is_not_made_up_for_by_a_cookie(api: Api) -> None:
    admin = await api.signed_in()
    for value in ("Bearer cht_wrong", "Basic YTpi", "Bearer", "cht_x"):
        answer = await admin.get("/api/v1/session", headers={"Authorization": value})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_new_password_revokes_the_api_tokens_made_under_the_old_one(api: Api) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    ada_id = (await ada.get("/api/v1/session")).json()["user"]["id"]

    async def robot() -> httpx.AsyncClient:
        made = (await ada.post("/api/v1/tokens", json={"name": "ci"})).json()
        return api.client(authorization=f"Bearer {made['token']}")

    before = await robot()
    assert (await before.get("/api/v1/session")).status_code == 200
    passwords = {"current_password": "ada-ada", "new_password": "another-one"}
    assert (await ada.post("/api/v1/password", json=passwords)).status_code == 204
    assert (await before.get("/api/v1/session")).status_code == 401
    # An admin's reset, too.
    before = await robot()
    assert (await admin.patch(f"/api/v1/users/{ada_id}", json={"password": "yet-another"})).status_code == 200
    assert (await before.get("/api/v1/session")).status_code == 401
