"""The `sari` command that an installation writes: in a terminal ripgrep itself answers, unless the daemon is faster."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sari.index.ripgrep_process import PROGRAM
from sari.install.launcher import program_text
from testing.sari.processes import wait_until
from testing.sari.shim import Shim
from testing.sari.world import World


class Launcher:
    """The command as installed, with a Python that notes what it is started for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = world.workspace("project", hello__txt="a needle\nNeedles\n", other__py="x = 'needle'\n")
        self._noted = world.base / "started"
        python = world.base / "python"
        python.write_text(f'#!/bin/sh\necho "$@" >> {self._noted}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        self.program = world.base / "sari"
        self.program.write_text(program_text(Path(sys.prefix), python))
        self.program.chmod(0o755)

    def search(self, *words: str, directory: Path | None = None, output: str = "") -> tuple[int, str, str]:
        """Search as in a terminal: the output is no pipe. Returns the exit code, the output and the messages."""
        path = output or str(self.world.base / "printed")
        with open(path, "w") as file:
            done = subprocess.run(
                [self.program, "search", *words], cwd=directory or self.root, env=self.world.environ,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
            )  # fmt: skip
        return done.returncode, "" if output else Path(path).read_text(), done.stderr

    def started(self) -> str:
        """Return what Python was started for since the last call."""
        noted = self._noted.read_text() if self._noted.exists() else ""
        self._noted.unlink(missing_ok=True)
        return noted

    def says(self, size: str) -> None:
        """Let the daemon's file name the workspace."""
        self.world.data.mkdir(parents=True, exist_ok=True)
        (self.world.data / "warm-roots").write_text(f"{size} {self.root}\n")


@pytest.fixture
def launcher(world: World) -> Launcher:
    return Launcher(world)


def _ripgrep(root: Path, flags: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [PROGRAM, "--hidden", "--glob=!.git", "-n", "--no-heading", *flags, "."],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return sorted(line.removeprefix("./") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["needle"], ["-SF", "needle"]),
        (["Needle"], ["-SF", "Needle"]),
        (["-w", "needle"], ["-SFw", "needle"]),
        (["NEEDLE", "-i"], ["-iF", "NEEDLE"]),
        (["-s", "--word", "needle"], ["-sFw", "needle"]),
        (["--regex", r"^\w needle$"], ["-S", r"^\w needle$"]),
        (["("], ["-F", "("]),
        (["absent"], ["-F", "absent"]),
    ],
)
def test_ripgrep_answers_in_a_small_workspace_without_python(
    launcher: Launcher, words: list[str], flags: list[str]
) -> None:
    launcher.says("small")
    code, printed, messages = launcher.search(*words)
    expected = _ripgrep(launcher.root, flags)
    assert (code, sorted(printed.splitlines()), messages) == (0 if expected else 1, expected, "")
    assert launcher.started() == ""


def test_the_workspace_is_found_from_a_folder_in_it(launcher: Launcher) -> None:
    (launcher.root / "src/deep").mkdir(parents=True)
    launcher.says("small")
    assert launcher.search("a needle", directory=launcher.root / "src/deep") == (0, "hello.txt:1:a needle\n", "")
    assert launcher.started() == ""


@pytest.mark.parametrize(
    "words",
    [
        ["-E", "("],
        ["-E", r"needle\nNeedles"],
        ["needle", "-g", "*.py"],
        ["needle", "--json"],
        ["-w", "-E", "needle"],
        ["needle", "again"],
        ["two\nlines"],
        [""],
        [],
    ],
)
def test_everything_else_is_answered_as_by_python_alone(launcher: Launcher, words: list[str]) -> None:
    launcher.says("small")
    code, printed, messages = launcher.search(*words)
    assert "search" in launcher.started()
    done = subprocess.run(
        [sys.executable, "-m", "sari.cli.main", "search", *words],
        cwd=launcher.root, env=launcher.world.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (code, printed, messages) == (done.returncode, done.stdout, done.stderr)


def test_a_pipe_receives_the_best_matches_first(launcher: Launcher) -> None:
    (launcher.root / "zz.py").write_text("def needle(): pass\n")
    launcher.says("small")
    done = launcher.world.sari("search", "needle()", "--workspace", str(launcher.root), sari=str(launcher.program))
    assert (done.returncode, done.stdout) == (0, "zz.py:1:def needle(): pass\n")
    done = subprocess.run(
        [launcher.program, "search", "needle"], cwd=launcher.root, env=launcher.world.environ,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("zz.py:1:def needle(): pass\n")


def test_the_home_folder_is_refused(launcher: Launcher) -> None:
    code, printed, messages = launcher.search("needle", directory=launcher.world.home)
    assert (code, printed) == (1, "")
    assert "is the home directory" in messages


def test_a_directory_that_was_removed_is_named_as_the_cause(launcher: Launcher) -> None:
    gone = launcher.world.base / "gone"
    gone.mkdir()
    command = f'cd "{gone}" && rmdir "{gone}" && exec "{launcher.program}" search needle > /dev/null'
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=launcher.world.environ, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("sari: the current directory cannot be used (No such file")
    assert done.stderr.count("sari:") == 1


def test_files_that_cannot_be_read_do_not_change_the_exit_code(launcher: Launcher) -> None:
    launcher.says("small")
    # Even root cannot read a link to itself.
    (launcher.root / ".ignore").symlink_to(".ignore")
    assert launcher.search("a needle")[:2] == (0, "hello.txt:1:a needle\n")
    assert launcher.search("absent")[:2] == (1, "")


def test_a_full_device_is_an_error(launcher: Launcher) -> None:
    launcher.says("small")
    code, _, messages = launcher.search("needle", output="/dev/full")
    assert (code, messages) == (1, "sari: the output cannot be written: No space left on device\n")


def test_the_daemon_says_which_workspaces_are_warm_and_answers_in_a_large_one(launcher: Launcher) -> None:
    world, known = launcher.world, launcher.world.data / "warm-roots"
    assert launcher.search("a needle") == (0, "hello.txt:1:a needle\n", "")
    # The answer did not wait for the daemon, which is started for the next one.
    wait_until(lambda: "warm_up" in launcher.started(), "the workspace is opened")
    wait_until(
        lambda: known.exists() and known.read_text() == f"small {launcher.root}\n", "the daemon has indexed it"
    )
    assert launcher.search("a needle") == (0, "hello.txt:1:a needle\n", "")
    assert launcher.started() == ""
    for number in range(5_001):
        (launcher.root / f"{number}.txt").write_text("x\n")
    world.sari("daemon", "stop")
    assert not known.exists()
    world.open_workspace(launcher.root)
    wait_until(
        lambda: known.exists() and known.read_text() == f"large {launcher.root}\n", "the daemon has indexed it"
    )
    assert launcher.search("a needle") == (0, "hello.txt:1:a needle\n", "")
    assert "search a needle" in launcher.started()


def test_a_client_connects_through_the_command(launcher: Launcher) -> None:
    shim = Shim(launcher.world.environ, launcher.root, sari=str(launcher.program))
    launcher.world.shims.append(shim)
    shim.initialize()
    answer = shim.call("search", {"query": "a needle"})
    assert "hello.txt" in str(answer)
    assert "mcp" in launcher.started()
    assert os.path.exists(launcher.world.registry_file)
