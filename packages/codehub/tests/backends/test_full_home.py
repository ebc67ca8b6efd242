"""Commands in a workspace whose home is full, or is filled by them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.workspaced.errors import RequestError
from codehub.workspaced.processes import Processes

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(home)], check=True)
    try:
        yield home
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


async def test_a_command_that_fills_the_home_is_not_lost_and_none_runs_unrecorded(
    small_home: Path, tmp_path: Path
) -> None:
    state = str(small_home / ".local/state/codehub/processes")
    processes = Processes(state, str(small_home), dict(os.environ))
    filler = processes.start("exec", ["sh", "-c", "cat /dev/zero > big; exit 3"])
    assert await processes.wait(filler) == 3
    again = Processes(state, str(small_home), dict(os.environ))  # as after a restart of workspaced
    assert (again.get(filler.id).exit_code, again.get(filler.id).command) == (3, filler.command)

    with pytest.raises(RequestError, match="No space left on device"):
        again.start("exec", ["touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()

    (small_home / "big").unlink()
    healed = again.start("exec", ["true"])
    assert await again.wait(healed) == 0
