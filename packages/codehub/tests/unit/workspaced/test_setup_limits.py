"""A setup step that does not end: its time limit, and stopping it on request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codehub.workspaced.errors import RequestError
from codehub.workspaced.link import Link
from codehub.workspaced.processes import Processes
from codehub.workspaced.setup import Setup

_DEADLINE_S = 60.0
# It ignores TERM, as a script does that traps it, and its children go with it.
_ENDLESS = "trap '' TERM; echo waiting for nothing; while :; do sleep 1; done"


@pytest.fixture
def reports() -> asyncio.Queue[dict[str, object]]:
    return asyncio.Queue()


@pytest.fixture
def setup(tmp_path: Path, reports: asyncio.Queue[dict[str, object]], monkeypatch: pytest.MonkeyPatch) -> Setup:
    home, state, runtime = (tmp_path / name for name in ("home", "state", "run"))
    for folder in (home, state, runtime):
        folder.mkdir()
    link = Link(lambda message: None, list)

    async def tell(message: dict[str, object]) -> None:
        reports.put_nowait(message)

    monkeypatch.setattr(link, "tell", tell)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    return Setup(str(home), str(state), str(runtime), Processes(str(state / "processes"), str(home), env), link)


def message(*commands: str, limit_s: float) -> dict[str, object]:
    return {"commands": [{"shell": command} for command in commands], "step_limit_s": limit_s}


async def settled(setup: Setup) -> dict[str, dict[str, object]]:
    """Return the steps by their ids when the setup is over."""
    assert setup._task is not None
    await asyncio.wait_for(setup._task, _DEADLINE_S)
    steps = setup.shown()["steps"]
    assert isinstance(steps, list)
    return {step["id"]: step for step in steps}


async def until_running(setup: Setup, reports: asyncio.Queue[dict[str, object]], step_id: str) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while setup._entry(step_id).get("state") != "running":
            await reports.get()


async def test_a_command_that_never_ends_is_stopped_at_the_limit_and_the_next_one_runs(
    setup: Setup, tmp_path: Path
) -> None:
    setup.take(message(_ENDLESS, "echo done > after", limit_s=0.5))
    steps = await settled(setup)
    assert steps["template-0"]["state"] == "failed"
    assert steps["template-0"]["kind"] == "timeout"
    assert "did not end within 0.5 s and was stopped" in str(steps["template-0"]["message"])
    assert steps["template-1"]["state"] == "done"
    assert (tmp_path / "home/after").read_text() == "done\n"
    assert "waiting for nothing" in setup.log()
    assert not setup._processes.running()


async def test_a_step_says_when_it_will_be_stopped(setup: Setup, reports: asyncio.Queue[dict[str, object]]) -> None:
    setup.take(message(_ENDLESS, limit_s=3600))
    await until_running(setup, reports, "template-0")
    assert setup.keeps_awake
    entry = setup._entry("template-0")
    assert float(str(entry["stops_at"])) - float(str(entry["started_at"])) == pytest.approx(3600, abs=_DEADLINE_S)
    await setup.skip("template-0")
    await settled(setup)


async def test_a_step_is_stopped_on_request_and_the_next_one_runs(
    setup: Setup, reports: asyncio.Queue[dict[str, object]], tmp_path: Path
) -> None:
    setup.take(message(_ENDLESS, "echo done > after", limit_s=3600))
    await until_running(setup, reports, "template-0")
    await setup.skip("template-0")
    steps = await settled(setup)
    assert (steps["template-0"]["state"], steps["template-0"]["kind"]) == ("skipped", "stopped")
    assert (tmp_path / "home/after").exists()
    with pytest.raises(RequestError, match="no longer running"):
        await setup.skip("template-0")


async def test_a_stopped_step_is_not_repeated_at_the_next_start_but_on_request(
    setup: Setup, reports: asyncio.Queue[dict[str, object]]
) -> None:
    first = message(_ENDLESS, limit_s=3600)
    setup.take(first)
    await until_running(setup, reports, "template-0")
    await setup.skip("template-0")
    await settled(setup)
    assert not setup._was_interrupted(setup._entry("template-0"))
    setup.take({**first, "retry": 1})
    await until_running(setup, reports, "template-0")
    await setup.skip("template-0")
    await settled(setup)


async def test_a_command_of_each_start_has_no_limit(setup: Setup, reports: asyncio.Queue[dict[str, object]]) -> None:
    """It may be a server that is meant to stay."""
    serves = {"shell": _ENDLESS, "when": "start"}
    setup.take({"commands": [serves, {"shell": "true"}], "step_limit_s": 0.1})
    await until_running(setup, reports, "template-0")
    assert "stops_at" not in setup._entry("template-0")
    assert setup.shown()["running"]
    assert not setup.keeps_awake, "a server that nobody uses lets the workspace sleep"
    await setup.skip("template-0")
    assert (await settled(setup))["template-0"]["kind"] == "stopped"
