"""The life of an installation, from a machine without sari to a machine without sari, as a person lives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testing.sari.callers import Caller, stop_all, total
from testing.sari.processes import wait_until
from testing.sari.shim import Shim, found_paths
from testing.sari.wheels import sari_wheel, wheels
from testing.sari.world import World

REPOSITORY = Path(__file__).resolve().parents[4]
CLIENTS = 3


def bootstrap(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """bootstrap.sh on a machine that has a Python and nothing else of ours."""
    environment = {**world.environ, "PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(REPOSITORY / "bootstrap.sh"), "--wheels", str(wheels()), *words],
        cwd=world.base,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def upgrade(world: World, sari: str, wheel: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sari, "upgrade", "--wheel", str(wheel), "--wheels", str(wheels())],
        cwd=world.base,
        env=world.environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def environments(world: World) -> list[str]:
    return sorted(path.name for path in (world.data / "app").iterdir() if path.is_dir())


def index_files(world: World) -> set[str]:
    return {str(path.relative_to(world.data)) for path in (world.data / "index").rglob("*")}


@pytest.mark.timeout(1200)
def test_an_installation_lives_through_upgrades_under_load_and_leaves_as_it_came(world: World) -> None:
    sari = str(world.home / ".local/bin/sari")
    codex = world.home / ".codex/config.toml"
    codex.parent.mkdir()
    codex.write_text("# mine\n")
    world.environ["SARI_WORKSPACE_IDLE_SEC"] = "600"
    # Compiling all of the dependencies is half of the time, and no part of the matter.
    world.environ["PIP_NO_COMPILE"] = "1"

    first = bootstrap(world, "--wheel", str(sari_wheel("3.90.0")), "--host", "codex")
    assert first.returncode == 0, first.stderr + first.stdout
    assert f'command = "{sari}"' in codex.read_text()
    assert world.sari("--version", sari=sari).stdout == "sari 3.90.0\n"
    # Whichever way it is called, clients get the path that outlives this version.
    inner = str(next((world.data / "app").glob("*/bin/sari")))
    assert "nothing to change" in world.sari("install", "--host", "codex", sari=inner).stdout

    callers = [Caller(world.shim(world.workspace(f"p{number}"), sari=sari), _search) for number in range(CLIENTS)]
    for caller in callers:
        caller.start()
    wait_until(lambda: all(caller.calls for caller in callers), "everyone has begun")
    daemon = world.wait_for_one_daemon()

    # Again: no harm, and the daemon is reused.
    again = bootstrap(world, "--wheel", str(sari_wheel("3.90.0")))
    assert again.returncode == 0, again.stderr
    assert world.wait_for_one_daemon() == daemon

    # An upgrade while everyone calls.
    before = total(callers)
    upgraded = upgrade(world, sari, sari_wheel("3.91.0"))
    assert upgraded.returncode == 0, upgraded.stderr
    assert world.sari("--version", sari=sari).stdout == "sari 3.91.0\n"
    wait_until(lambda: _version(world) == "3.91.0" and world.daemons() != [daemon], "the new daemon serves alone")
    newer = world.wait_for_one_daemon()
    seen = total(callers)
    wait_until(lambda: total(callers) > seen + 50, "calls go on")
    assert total(callers) > before

    # An upgrade whose daemon cannot start, whose client side does not answer, or that is no wheel, changes nothing.
    kept = environments(world)
    no_wheel = world.base / "sari-3.94.0-py3-none-any.whl"
    no_wheel.write_bytes(b"a download that was cut off")
    for wheel, says in (
        (sari_wheel("3.92.0", broken="daemon/boot.py: raise SystemError('broken')"), "could not be replaced"),
        (sari_wheel("3.92.1", broken="shim/entry.py: raise SystemError('broken')"), "does not answer a client"),
        (no_wheel, "could not be installed into its environment"),
    ):
        failed = upgrade(world, sari, wheel)
        assert failed.returncode != 0
        assert says in failed.stderr
        assert "Traceback" not in failed.stderr
        assert world.sari("--version", sari=sari).stdout == "sari 3.91.0\n"
        assert world.wait_for_one_daemon() == newer
        assert environments(world) == kept
    calls = stop_all(callers)
    print(f"{calls} calls by {CLIENTS} clients over an upgrade and three failed ones, 0 failed")

    indexes = index_files(world)
    world.end_shims()
    gone = world.sari("self", "uninstall", sari=sari)
    assert gone.returncode == 0, gone.stderr
    assert codex.read_text() == "# mine\n"
    assert not os.path.lexists(sari)
    assert not (world.data / "app").exists()
    assert world.daemons() == []
    assert world.registry_file.exists()
    assert index_files(world) >= {name for name in indexes if not name.endswith(("-wal", "-shm", ".lock"))}


def _search(shim: Shim) -> None:
    # A pace, so that the two cores are left to what is being installed.
    time.sleep(0.02)
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]


def _version(world: World) -> str:
    live = [entry for entry in world.registry()["daemons"].values() if not entry["draining"]]
    return str(live[0]["version"]) if len(live) == 1 else ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--wheel", "no-such.whl"], "there is no wheel at no-such.whl"),
        (["--wheels", "no-such-folder"], "not a folder of wheels"),
    ],
)
def test_what_cannot_be_installed_is_said_plainly_and_leaves_nothing(
    world: World, words: list[str], says: str
) -> None:
    done = bootstrap(world, *words)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (world.home / ".local/bin/sari").exists()


def test_a_machine_without_a_fitting_python_is_told_so(world: World) -> None:
    old = world.base / "bin" / "python3"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    tools = world.base / "tools"
    tools.mkdir()
    for tool in ("dirname", "sh"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/sh", str(REPOSITORY / "bootstrap.sh")],
        env={"HOME": str(world.home), "PATH": f"{old.parent}:{tools}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or later is needed" in done.stderr


def bare_debian(world: World, *tools: str) -> dict[str, str]:
    """A Python that can make no environments, as Debian's is, and of the system's tools only these."""
    python, path = world.base / "bin" / "python3", world.base / "tools"
    python.parent.mkdir()
    path.mkdir()
    able = world.base / "able"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) [ -e {able} ] || exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    for tool in tools:
        (path / tool).symlink_to(f"/usr/bin/{tool}")
    return {"HOME": str(world.home), "PATH": f"{python.parent}:{path}"}


def run_in(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(REPOSITORY / "bootstrap.sh"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_python_that_can_make_no_environments_is_reported_with_what_to_install(world: World) -> None:
    done = run_in(bare_debian(world, "dirname", "sh", "id"))
    assert done.returncode == 1
    assert "sudo apt-get install python3-venv python3-pip" in done.stderr


@pytest.mark.needs("root")
def test_root_on_debian_gets_what_its_python_lacks(world: World) -> None:
    environment = bare_debian(world, "dirname", "sh", "id", "touch")
    apt = world.base / "tools" / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "apt-get $*" >&2\ncase "$*" in *python3-venv*) touch {world.base}/able;; esac\n')
    apt.chmod(0o755)
    done = run_in(environment, "--wheel", "none.whl")
    assert [line for line in done.stderr.splitlines() if line.startswith("apt-get")] == [
        "apt-get update -qq",
        "apt-get install -y -qq python3-venv python3-pip",
    ]
    assert "there is no wheel at none.whl" in done.stderr, "and went on"


def test_a_sari_of_pip_says_how_it_is_upgraded(world: World) -> None:
    done = world.sari("upgrade")
    assert done.returncode == 1
    assert "pip install --upgrade sari" in done.stderr
