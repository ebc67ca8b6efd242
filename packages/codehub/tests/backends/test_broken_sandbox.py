"""With a sandbox that is broken, nothing starts without it unless an administrator says so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions
from codehub.domain.errors import Terminal
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.instances import started
from testing.codehub.contracts.instances import wid as workspace_id
from testing.codehub.processes import ProcessWorld, ended, make_world

pytestmark = [pytest.mark.xdist_group("ide"), pytest.mark.needs("bwrap", "slirp4netns", "root")]

# Not the numbers of other tests: the end of an instance is the end of every process of its uid, whoever started it.
FIRST = 4_101


def wid() -> str:
    return workspace_id(FIRST)


def broken(base: Path, isolation: str = "auto", *, several: bool = False) -> ProcessInstances:
    async def several_users() -> bool:
        return several

    options = ProcessOptions(
        use_bubblewrap=False, isolation=isolation, isolated_before=base / "isolated", hidden=(base,)
    )
    return ProcessInstances(base / "run", options, several_users=several_users)


async def test_nothing_starts_without_it_where_workspaces_were_isolated_before(tmp_path: Path) -> None:
    options = ProcessOptions(isolated_before=tmp_path / "isolated", hidden=(tmp_path,))
    async with ended(ProcessWorld(tmp_path, ProcessInstances(tmp_path / "run", options))) as world:
        await started(world, FIRST)
        spec = await world.spec(wid())
        with pytest.raises(Terminal, match=r"isolated here before.*CODEHUB_ISOLATION=best-effort"):
            await broken(tmp_path).start(spec, ignore_progress, no_fence, replace=True)


async def test_nothing_starts_without_it_where_there_are_several_users(tmp_path: Path) -> None:
    spec = await make_world(tmp_path, bwrap=False).spec(wid())
    with pytest.raises(Terminal, match="several users"):
        await broken(tmp_path, several=True).start(spec, ignore_progress, no_fence)


async def test_nothing_starts_without_it_where_it_is_required(tmp_path: Path) -> None:
    spec = await make_world(tmp_path, bwrap=False).spec(wid())
    with pytest.raises(Terminal, match="required"):
        await broken(tmp_path, "required").start(spec, ignore_progress, no_fence)
    assert await broken(tmp_path, "required").list_all() == {}


@pytest.mark.parametrize(
    ("isolation", "before", "health", "said"),
    [
        ("auto", True, "problem", "no workspace is started: .*isolated here before"),
        ("required", False, "problem", "no workspace is started: .*CODEHUB_ISOLATION=required"),
        ("auto", False, "warning", "a second user is refused"),
        ("best-effort", True, "warning", "see each other's files"),
    ],
)
def test_doctor_says_whether_workspaces_start_without_it(
    tmp_path: Path, isolation: str, before: bool, health: str, said: str
) -> None:
    if before:
        (tmp_path / "isolated").touch()
    program = Path(shutil.which("bwrap") or "").resolve()
    doctor = f"{sys.executable} -m codehub.cli.main doctor --json --no-boundaries"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount --bind /dev/null {program} && exec {doctor}"],
        env={
            "PATH": os.environ["PATH"],
            "CODEHUB_DATA_DIR": str(tmp_path),
            "CODEHUB_RUNTIME": "process",
            "CODEHUB_ISOLATION": isolation,
            **({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    findings = [one for one in json.loads(done.stdout) if one["part"] == "isolation"]
    assert re.search(said, findings[0]["message"]), findings
    assert findings[0]["health"] == health
