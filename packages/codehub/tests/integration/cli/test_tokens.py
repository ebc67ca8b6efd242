"""`codehub tokens`: creating and revoking need the password; a token restricted to a workspace stays in it."""

from __future__ import annotations

import json

from testing.codehub.dashboard import PASSWORD

from .conftest import Command


async def test_a_token_is_created_for_one_workspace_used_listed_and_revoked(signed_in: Command) -> None:
    for name in ("mine", "other"):
        assert (await signed_in("ws", "create", name, "--no-start")).code == 0
    password = ("--password-stdin",)
    words = ("tokens", "create", "ci", "--workspace", "mine", "--expires", "30d", *password)
    made = await signed_in(*words, stdin=PASSWORD + "\n")
    assert made.code == 0, made.err
    secret = made.out.strip()
    assert secret.startswith("cht_")
    assert (await signed_in("ws", "show", "mine", CODEHUB_TOKEN=secret)).code == 0
    assert (await signed_in("ws", "show", "other", CODEHUB_TOKEN=secret)).code == 5
    listed = json.loads((await signed_in("tokens", "ls", "--json")).out)["items"]
    (item,) = [item for item in listed if item["name"] == "ci"]
    assert item["workspace_id"] is not None
    assert item["expires_at"] is not None
    assert secret not in json.dumps(listed)
    assert "ci" in (await signed_in("tokens", "ls")).out
    revoked = await signed_in("tokens", "revoke", "ci", *password, stdin=PASSWORD + "\n")
    assert revoked.code == 0, revoked.err
    assert (await signed_in("ws", "ls", CODEHUB_TOKEN=secret)).code == 3
    again = await signed_in("tokens", "revoke", item["id"], *password, stdin=PASSWORD + "\n")
    assert (again.code, "no API token" in again.err) == (5, True), again.err


async def test_creating_a_token_needs_the_password_and_whole_days(signed_in: Command) -> None:
    wrong = await signed_in("tokens", "create", "--password-stdin", stdin="wrong\n")
    assert (wrong.code, wrong.out) == (3, ""), wrong.err
    without = await signed_in("tokens", "create")
    assert (without.code, "--password-stdin" in without.err) == (2, True), without.err
    hours = await signed_in("tokens", "create", "--expires", "36h", "--password-stdin", stdin=PASSWORD + "\n")
    assert (hours.code, "30d" in hours.err) == (2, True), hours.err
    unknown = await signed_in("tokens", "create", "--workspace", "nope", "--password-stdin", stdin=PASSWORD + "\n")
    assert unknown.code == 5, unknown.err
    named = [item["name"] for item in json.loads((await signed_in("tokens", "ls", "--json")).out)["items"]]
    assert len(named) == 1, named  # the one of `codehub login`
