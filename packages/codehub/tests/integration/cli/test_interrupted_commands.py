"""Commands of administrators that are killed between any two requests: repeating them completes what was begun."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from pathlib import Path

from testing.codehub.dashboard import PASSWORD, Stage

from .conftest import Command, Result

_ROOT = Path(__file__).parents[5]
_AS_ADMIN = {"CODEHUB_PASSWORD": PASSWORD}


async def killed_before_request(codehub: Command, nth: int, *words: str) -> Result:
    """Run a command that is killed right before its nth request that changes something."""
    command = (sys.executable, "-m", "testing.codehub.killed_commands", "codehub.cli.client:Client.post", str(nth))
    process = await codehub.begin(*words, program=command, PYTHONPATH=str(_ROOT), **_AS_ADMIN)
    return await codehub.end(process)


async def owners(codehub: Command) -> dict[str, str]:
    items = json.loads(await codehub.ok("ws", "ls", "--all", "--json"))["items"]
    return {item["name"]: item["owner"] for item in items}


async def test_an_offboarding_that_is_killed_between_any_two_requests_is_completed_by_repeating_it(
    signed_in: Command, stage: Stage
) -> None:
    for name in ("ada", "bob"):
        await signed_in.ok("admin", "users", "add", name, "--password-stdin", stdin="long enough\n", **_AS_ADMIN)
    for name in ("api", "web"):
        await stage.add(name, owner="ada")
    deaths = 0
    for nth in itertools.count(1):
        done = await killed_before_request(signed_in, nth, "admin", "users", "offboard", "ada", "--to", "bob")
        assert (await owners(signed_in)).keys() == {"api", "web"}
        if done.code != -signal.SIGKILL:
            break
        deaths += 1
    assert deaths >= 3, "before the first workspace, between the two, and after both"
    assert done.code in (0, 5), done  # 5: it was removed before the last death
    assert await owners(signed_in) == {"api": "bob", "web": "bob"}
    assert (await signed_in("admin", "users", "rm", "ada", **_AS_ADMIN)).code == 5
