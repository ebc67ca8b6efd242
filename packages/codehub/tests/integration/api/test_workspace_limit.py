"""How many workspaces a user may have: every way to get one is counted, also several at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest_asyncio

from codehub.adapters.postgres.pool import Database
from testing.codehub.api import Api, put_in_state, running_api

W = "/api/v1/workspaces"
MOST = 3


@pytest_asyncio.fixture
async def api(database: Database) -> AsyncIterator[Api]:
    async with running_api(database, config={"max_workspaces": MOST}) as running:
        yield running


async def made(client: httpx.AsyncClient, name: str) -> str:
    answer = await client.post(W, json={"name": name, "start": False})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def is_refused(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["error"]["code"]) == (409, "WORKSPACE_LIMIT_EXCEEDED")


async def number_of(client: httpx.AsyncClient) -> int:
    return int((await client.get(W)).json()["total"])


async def test_creating_at_once_never_exceeds_the_limit(api: Api) -> None:
    ada = await api.user("ada")
    names = [f"n{number}" for number in range(12)]
    answers = await asyncio.gather(*(ada.post(W, json={"name": name, "start": False}) for name in names))
    assert sorted(answer.status_code for answer in answers) == [201] * MOST + [409] * (12 - MOST)
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert is_refused(refused)
    assert f"you have {MOST} workspaces, and the limit is {MOST}: delete one first" in refused.text
    assert await number_of(ada) == MOST


async def test_an_administrator_has_the_same_limit(api: Api) -> None:
    admin = await api.signed_in()
    for name in ("a", "b", "c"):
        await made(admin, name)
    assert is_refused(await admin.post(W, json={"name": "d", "start": False}))


async def test_one_that_is_being_deleted_counts_until_it_is(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    first, *_ = [await made(ada, name) for name in ("a", "b", "c")]
    assert (await ada.delete(f"{W}/{first}", params={"force": "true"})).status_code == 204
    assert is_refused(await ada.post(W, json={"name": "d", "start": False}))
    await put_in_state(database, first, phase="DELETED", deleted_at=datetime.now(UTC))
    assert (await ada.post(W, json={"name": "d", "start": False})).status_code == 201


async def test_a_copy_counts(api: Api, database: Database) -> None:
    ada = await api.user("ada")
    first, *_ = [await made(ada, name) for name in ("a", "b", "c")]
    await put_in_state(database, first, phase="ARCHIVED", archive_key=f"{first}/one")
    copied = await ada.post(f"{W}/{first}:duplicate", json={"name": "copy", "start": False})
    assert is_refused(copied)
    continued = await ada.post(f"{W}/{first}:continue-from-archive")
    assert is_refused(continued)
    assert await number_of(ada) == MOST


async def test_a_transfer_counts_for_the_receiver_and_stops_nothing_in_vain(api: Api, database: Database) -> None:
    ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
    given = await made(ada, "given")
    await put_in_state(database, given, phase="RUNNING", desired_state="RUNNING")
    for name in ("a", "b", "c"):
        await made(bob, name)
    answer = await admin.post(f"{W}/{given}:transfer", json={"username": "bob"})
    assert is_refused(answer)
    assert "bob has to delete one first" in answer.text
    assert (await ada.get(f"{W}/{given}")).json()["desired_state"] == "RUNNING"
    assert (await admin.post(f"{W}/{given}:transfer", json={"username": "ada"})).status_code == 202, "it stays ada's"


async def test_an_undeleted_workspace_counts(api: Api, database: Database) -> None:
    ada, admin = await api.user("ada"), await api.signed_in()
    gone = await made(ada, "gone")
    await put_in_state(database, gone, phase="DELETED", desired_state="DELETED", deleted_at=datetime.now(UTC))
    kept = [await made(ada, name) for name in ("a", "b", "c")]
    assert is_refused(await admin.post(f"{W}/{gone}:undelete"))
    await put_in_state(database, kept[0], phase="DELETED", desired_state="DELETED", deleted_at=datetime.now(UTC))
    assert (await admin.post(f"{W}/{gone}:undelete")).status_code == 202
