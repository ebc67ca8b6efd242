"""What a request creates while the password is changed, the session ended or the workspace given away meanwhile."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest

from codehub.adapters.postgres import login_links, ports, users, workspaces
from codehub.adapters.postgres.pool import Database
from codehub.api.context import Context
from codehub.domain.errors import Denied, Unauthorized
from codehub.domain.user_secrets import SecretKind
from codehub.services.accounts import Accounts
from codehub.services.host_keys import keep_host_key
from codehub.services.login_links import LoginLinks
from codehub.services.passwords import Passwords
from codehub.services.principal import Principal
from testing.codehub.api import Api, cheap_passwords

W = "/api/v1/workspaces"
KEY = "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519" + b"\0\0\0\x20" + bytes(32)).decode()


@dataclass(slots=True)
class SlowPasswords(Passwords):
    """Real passwords; something else happens after each check, before its answer is used."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def verify(self, password_hash: str | None, password: str, *, familiar: bool = False) -> bool:
        right = await Passwords.verify(self, password_hash, password, familiar=familiar)
        if self.meanwhile is not None:
            then, self.meanwhile = self.meanwhile, None
            await then()
        return right


def accounts_of(api: Api, passwords: Passwords) -> Accounts:
    return replace(cast(Context, api.app.state.context).accounts, passwords=passwords)


async def user_id_of(admin: httpx.AsyncClient, username: str) -> str:
    items = (await admin.get("/api/v1/users")).json()["items"]
    return str(next(item["id"] for item in items if item["username"] == username))


async def principal_of(api: Api, client: httpx.AsyncClient) -> Principal:
    context = cast(Context, api.app.state.context)
    found = await context.accounts.by_session([client.cookies["session"]], client.headers["X-CodeHub-Session-Key"])
    assert found is not None
    return found


@pytest.mark.parametrize("change", [{"password": "reset-by-admin"}, {"disabled": True}])
async def test_a_sign_in_with_the_old_password_gives_no_session_after_a_reset(
    api: Api, change: dict[str, Any]
) -> None:
    admin = await api.signed_in()
    await api.user("ada")
    user_id = await user_id_of(admin, "ada")
    made = cheap_passwords()
    passwords = SlowPasswords(made.hasher)

    async def reset() -> None:
        answer = await admin.patch(f"/api/v1/users/{user_id}", json=change)
        assert answer.status_code == 200, answer.text

    passwords.meanwhile = reset
    with pytest.raises(Unauthorized):
        await accounts_of(api, passwords).sign_in("ada", "ada-ada", address="127.0.0.1", user_agent="x")
    async with api.deps.database.transaction() as tx:
        rows = await (await tx.execute("SELECT 1 FROM sessions WHERE user_id = %s", [user_id])).fetchall()
    assert rows == []


async def test_changing_the_password_does_not_undo_a_reset(api: Api) -> None:
    admin, ada = await api.signed_in(), await api.user("ada")
    user_id, who = await user_id_of(admin, "ada"), await principal_of(api, ada)
    passwords = SlowPasswords(cheap_passwords().hasher)

    async def reset() -> None:
        await admin.patch(f"/api/v1/users/{user_id}", json={"password": "reset-by-admin"})

    passwords.meanwhile = reset
    with pytest.raises((Denied, Unauthorized)):
        await accounts_of(api, passwords).change_password(who, "ada-ada", "of-the-thief", address="127.0.0.1")
    assert await api.signed_in("ada", "reset-by-admin")


async def test_an_ended_session_creates_nothing_that_signs_in_again(api: Api) -> None:
    """The requests were authenticated before the session ended, and write after that."""
    context = cast(Context, api.app.state.context)
    links = LoginLinks(api.deps.database, context.workspaces, context.accounts, api.clock)
    ada = await api.user("ada")
    thief = await principal_of(api, await api.signed_in("ada", "ada-ada"))
    assert (await ada.delete("/api/v1/sessions")).status_code == 204
    with pytest.raises(Unauthorized):
        await context.accounts.mint_token(thief, "kept", None)
    with pytest.raises(Unauthorized):
        await links.make(thief, None)
    with pytest.raises(Unauthorized):
        await context.ssh.add_key(thief, KEY, "kept")
    with pytest.raises(Unauthorized):
        await context.user_setup.set_secret(thief, "KEPT", SecretKind.ENV, b"x")
    with pytest.raises(Unauthorized):
        await context.user_setup.add_credential(thief, "git.example", "", "kept")
    with pytest.raises(Unauthorized):
        await context.accounts.end_session(thief, thief.bearer_id)
    assert (await ada.get("/api/v1/tokens")).json()["total"] == 0


async def test_a_link_that_is_being_made_ends_with_its_session(api: Api, database: Database) -> None:
    """The link is not committed yet when the session ends."""
    ada = await api.user("ada")
    other = await api.signed_in("ada", "ada-ada")
    user_id = (await ada.get("/api/v1/session")).json()["user"]["id"]
    async with database.transaction() as tx:
        await users.lock(tx, user_id)
        await login_links.insert(
            tx,
            b"hash",
            user_id=user_id,
            token_id=None,
            workspace_id=None,
            expires_at=api.clock() + timedelta(minutes=1),
        )
        ending = asyncio.create_task(other.delete("/api/v1/sessions"))
        await done_or_waiting(database, ending)
    assert (await ending).status_code == 204
    async with database.transaction() as tx:
        assert await login_links.peek(tx, b"hash", api.clock()) is None


async def done_or_waiting(database: Database, task: asyncio.Task[Any]) -> None:
    """Wait until the task has ended, or waits for a lock."""
    async with asyncio.timeout(90):
        while not task.done():
            async with database.statement() as tx:
                row = await (
                    await tx.execute(
                        "SELECT count(*) AS n FROM pg_stat_activity"
                        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                    )
                ).fetchone()
            if row is not None and row["n"]:
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("request_of", ["share", "link"])
async def test_a_previous_owner_shares_no_port_of_a_workspace_that_is_being_given_away(
    api: Api, database: Database, request_of: str
) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    path = f"{W}/{(await ada.post(W, json={'name': 'mine', 'start': False})).json()['id']}"
    workspace_id = path.rpartition("/")[2]
    bob_id = (await bob.get("/api/v1/session")).json()["user"]["id"]
    await ada.patch(f"{path}/ports/9000", json={"share": "link"})
    async with database.transaction() as tx:
        await workspaces.lock(tx, workspace_id)
        await workspaces.transfer(tx, workspace_id, bob_id, api.clock())
        asked = asyncio.create_task(
            ada.patch(f"{path}/ports/8080", json={"share": "link"})
            if request_of == "share"
            else ada.post(f"{path}/ports/9000/links")
        )
        await done_or_waiting(database, asked)
    assert (await asked).status_code == 403
    async with database.transaction() as tx:
        assert await ports.shares(tx, workspace_id) == {}
        assert await ports.links_of(tx, workspace_id, 9000, api.clock()) == []


async def test_a_host_key_of_the_previous_owner_is_not_kept(api: Api, database: Database) -> None:
    """The workspace makes the key, so the previous owner knows its private half."""
    ada, bob = await api.user("ada"), await api.user("bob")
    workspace_id = (await ada.post(W, json={"name": "mine", "start": False})).json()["id"]
    ids = [(await client.get("/api/v1/session")).json()["user"]["id"] for client in (ada, bob)]
    async with database.transaction() as tx:
        await workspaces.transfer(tx, workspace_id, ids[1], api.clock())
    async with database.transaction() as tx:
        with pytest.raises(Denied):
            await keep_host_key(tx, workspace_id, ids[0], "private", KEY, api.clock())
