"""`codehub admin audit`: for people, as JSON lines, and as things happen."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import click
import pytest

from codehub.cli.audit import line_of, start_of

from .conftest import Command


async def test_the_trail_is_printed_filtered_and_followed(signed_in: Command) -> None:
    out = await signed_in.ok("admin", "audit")
    assert "sign_in.succeeded  admin" in out
    lines = (await signed_in.ok("admin", "audit", "--json", "--event", "token.*", "--since", "1h")).splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["token.created"]
    assert (await signed_in.ok("admin", "audit", "--user", "nobody")) == ""
    wrong = await signed_in("admin", "audit", "--since", "yesterday")
    assert (wrong.code, "--since" in wrong.err) == (2, True)

    following = await signed_in.begin("admin", "audit", "--follow", "--json", "--event", "sign_in.failed")
    assert following.stdout is not None
    try:
        async with asyncio.timeout(120):
            # Repeated: whether it follows already is not to be seen from outside.
            while True:
                await signed_in("login", "-u", "admin", "--password-stdin", stdin="wrong, and long\n")
                try:
                    line = await asyncio.wait_for(following.stdout.readline(), 5)
                    break
                except TimeoutError:
                    continue
        assert json.loads(line)["target"] == "admin"
    finally:
        following.kill()
        await following.wait()


def test_a_time_is_a_span_before_now_or_a_date() -> None:
    assert start_of(None) is None
    span = start_of("24h")
    assert span is not None
    assert abs(datetime.now(UTC) - timedelta(days=1) - datetime.fromisoformat(span)) < timedelta(minutes=1)
    assert start_of("2026-11-17T00:00:00+00:00") == "2026-11-17T00:00:00+00:00"
    with pytest.raises(click.UsageError):
        start_of("24 hours")


def test_what_people_wrote_into_names_does_not_reach_the_terminal_as_control_characters() -> None:
    item = {
        "at": "2026-11-17T00:00:00+00:00", "event": "token.created", "actor": "ada", "target": "x", "address": "",
        "workspace_id": None, "detail": {"name": "a\x1b[2Jb", "none": None},
    }  # fmt: skip
    assert "\x1b" not in line_of(item)
