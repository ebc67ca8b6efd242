"""`make` survives a registry that fails once, and CI ends if the parts that its tests need cannot be installed.

The scripts run as they are, in a directory of their own, with programs of the test instead of npm and apt-get.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[4]
# Fails as often as `failures` says, and writes down how it was called.
_FAILING = """#!/bin/sh
cd "$WORLD"
echo "$(basename "$0") $*" >> calls
left=$(cat failures)
if [ "$left" -gt 0 ]; then echo $((left - 1)) > failures; echo "connection reset" >&2; exit 1; fi
"""


class _World:
    """A copy of scripts/ and a PATH on which the fetching programs are the test's."""

    def __init__(self, place: Path) -> None:
        self.place = place
        shutil.copytree(_ROOT / "scripts", place / "scripts")
        self.programs = place / "programs"
        self.programs.mkdir()
        for name in ("npm", "apt-get"):
            self.program(name, _FAILING)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run(self, script: str, *, failures: int, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.place / "failures").write_text(str(failures))
        path = f"{self.programs}:/usr/bin:/bin"
        return subprocess.run(
            ["/bin/bash", str(self.place / "scripts" / script)],
            env={"PATH": path, "WORLD": str(self.place), "HOME": str(self.place), "RETRY_WAIT_S": "0", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def calls(self) -> list[str]:
        return (self.place / "calls").read_text().splitlines()


@pytest.fixture
def world(tmp_path: Path) -> _World:
    return _World(tmp_path)


def _with_typescript(world: _World) -> None:
    binaries = world.place / ".parts/javascript/node_modules/.bin"
    binaries.mkdir(parents=True)
    (binaries / "tsc").write_text("#!/bin/sh\n")
    (binaries / "tsc").chmod(0o755)


def test_a_registry_that_fails_twice_does_not_fail_the_javascript_check(world: _World) -> None:
    _with_typescript(world)
    ended = world.run("javascript/check.sh", failures=2)
    assert ended.returncode == 0, ended.stderr
    assert len(world.calls()) == 3
    assert "npm failed (attempt 2 of 3), trying again" in ended.stderr


def test_a_registry_that_is_away_fails_it_after_three_attempts(world: _World) -> None:
    _with_typescript(world)
    ended = world.run("javascript/check.sh", failures=9)
    assert ended.returncode != 0
    assert len(world.calls()) == 3


@pytest.mark.needs("root")
class TestParts:
    @pytest.fixture(autouse=True)
    def _something_is_missing(self, world: _World) -> None:
        script = world.place / "scripts/parts.sh"
        changed = script.read_text().replace(
            "declare -A package_of=(", "declare -A package_of=([no-such-program]=gone"
        )
        # The machine's own policy file is not the test's to change.
        script.write_text(changed.replace("/usr/sbin/policy-rc.d", str(world.place / "policy-rc.d")))

    def test_a_mirror_that_fails_once_does_not_fail_the_installation(self, world: _World) -> None:
        ended = world.run("parts.sh", failures=1, CI="true")
        assert ended.returncode == 0, ended.stderr
        assert any("DPkg::Lock::Timeout=300" in call and "gone" in call for call in world.calls()), world.calls()

    def test_in_ci_a_failed_installation_is_an_error_with_the_end_of_the_log(self, world: _World) -> None:
        ended = world.run("parts.sh", failures=99, CI="true")
        assert ended.returncode == 1
        assert "connection reset" in ended.stderr
        assert "could not install" in ended.stderr

    def test_elsewhere_the_tests_without_these_parts_still_run(self, world: _World) -> None:
        ended = world.run("parts.sh", failures=99)
        assert ended.returncode == 0
        assert "could not install" in ended.stderr
