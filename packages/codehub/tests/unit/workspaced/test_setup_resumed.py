"""What a new start of a workspace does with the steps of its setup that an earlier start left behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from codehub.workspaced.link import Link
from codehub.workspaced.processes import Processes
from codehub.workspaced.setup import Setup

_DONE = {"state": "done"}
_SUCCEEDED, _TERMINATED, _NEVER_STARTED = "a" * 16, "b" * 16, "c" * 16
_FAILED = {"state": "failed", "message": "The command ended with exit code 3."}


def known_after(tmp_path: Path, entries: Mapping[str, Mapping[str, object]], *, same_start: bool = False) -> set[str]:
    home, state, runtime = (tmp_path / name for name in ("home", "state", "run"))
    for folder in (home, state / "setup", runtime):
        folder.mkdir(parents=True)
    for id_, code in ((_SUCCEEDED, 0), (_TERMINATED, 143)):
        process = state / "processes" / id_
        process.mkdir(parents=True)
        spec = {
            "id": id_,
            "kind": "process",
            "command": ["true"],
            "started_at": 1.0,
            "pid": 1,
            "start": 1,
            "boot": "",
        }
        (process / "spec.json").write_text(json.dumps(spec))
        (process / "exit").write_text(json.dumps({"exit_code": code}))
    (state / "setup/state.json").write_text(json.dumps(entries))
    if same_start:
        (runtime / "setup.json").write_text("{}")
    processes = Processes(str(state / "processes"), str(home), {})
    setup = Setup(str(home), str(state), str(runtime), processes, Link(lambda message: None, list))
    return set(setup._done_once)


@pytest.mark.parametrize("process", [_TERMINATED, _NEVER_STARTED])
def test_a_step_that_ended_with_its_start_is_repeated(tmp_path: Path, process: str) -> None:
    entries = {"clone": {"state": "running", "process": process}, "template-0": _DONE, "template-1": _FAILED}
    assert known_after(tmp_path, entries) == {"template-0", "template-1"}


def test_a_step_that_was_noted_as_interrupted_is_repeated_at_the_next_start_alone(tmp_path: Path) -> None:
    entries = {"clone": {"state": "failed", "interrupted": True}}
    assert known_after(tmp_path / "same", entries, same_start=True) == {"clone"}
    assert known_after(tmp_path / "next", entries) == set()


def test_a_step_that_succeeded_as_its_start_ended_is_not_repeated(tmp_path: Path) -> None:
    assert known_after(tmp_path, {"template-0": {"state": "running", "process": _SUCCEEDED}}) == {"template-0"}
