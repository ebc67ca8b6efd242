"""How an IDE that its image starts gets the variables that `workspaced` receives, and the users of a workspace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codehub.adapters.workspaced_launch import FOLDER, Launch, hook_words
from codehub.domain import environment_names
from codehub.workspaced import users, with_environment
from codehub.workspaced.environment import Environment

_PRINT = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def run(home: Path, pipe: str, command: list[str]) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "OWN": "ours"}
    if pipe:
        env[with_environment.VARIABLE] = pipe
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", str(FOLDER / "with_environment.py"), *command],
        env=env,
        stdout=subprocess.PIPE,
    )


def printed(process: subprocess.Popen[bytes]) -> dict[str, str]:
    said, _ = process.communicate(timeout=60)
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.parametrize("helper_first", [True, False])
def test_the_command_gets_the_secrets_in_either_order(tmp_path: Path, helper_first: bool) -> None:
    pipe = str(tmp_path / "run" / "environment")
    secrets = {"TOKEN": "x" * 20_000, "OTHER": "line\nbreak"}

    def send() -> None:
        # As `workspaced` does, which may be restarted before the IDE reads: its supervisor keeps the pipe open.
        Environment({}, os.dup(kept)).put_secrets(secrets)

    if helper_first:
        kept = with_environment.open_pipe(pipe)
        send()
        process = run(tmp_path, pipe, _PRINT)
    else:
        process = run(tmp_path, pipe, _PRINT)
        kept = with_environment.open_pipe(pipe)
        send()
    try:
        env = printed(process)
    finally:
        os.close(kept)
    assert {name: env[name] for name in secrets} == secrets
    assert with_environment.VARIABLE not in env
    assert (os.stat(pipe).st_mode & 0o777, os.stat(tmp_path / "run").st_mode & 0o777) == (0o600, 0o700)


def test_what_the_user_installed_is_on_the_commands_path_and_does_not_replace_the_command(tmp_path: Path) -> None:
    own = tmp_path / ".local/bin"
    own.mkdir(parents=True)
    for name in ("sh", "mine"):
        (own / name).write_text("#!/bin/cat\n")
        (own / name).chmod(0o755)
    said, _ = run(tmp_path, "", ["sh", "-c", "command -v mine; command -v sh"]).communicate(timeout=60)
    assert said.decode().split() == [f"{own}/mine", f"{own}/sh"]


def test_without_secrets_it_waits_for_nothing_and_takes_the_repositorys_variables(tmp_path: Path) -> None:
    saved = tmp_path / ".local/state/codehub/setup"
    saved.mkdir(parents=True)
    wanted = {"NODE_ENV": "test", "OWN": "theirs", "HOME": "/tmp", "PATH": "/opt/tool:${containerEnv:PATH}"}
    (saved / "environment.json").write_text(json.dumps(wanted | {"NODE_OPTIONS": "--no-such-option"}))
    env = printed(run(tmp_path, "", _PRINT))
    assert (env["NODE_ENV"], env["OWN"], env["HOME"]) == ("test", "theirs", str(tmp_path))
    assert env["PATH"] == f"/opt/tool:{tmp_path}/.local/bin:{tmp_path}/.venv/bin:" + os.environ["PATH"]
    assert "NODE_OPTIONS" not in env, "a mistake in it would keep the IDE from starting"


def test_no_variable_of_a_repository_keeps_programs_from_starting() -> None:
    own = {"PATH": "/usr/bin:/bin", "HOME": "/home/coder"}
    of = with_environment.repository_variables
    assert of({"A": "${containerEnv:HOME}/a", "B": "${containerEnv:A}/b", "C": "${containerEnv:NO:c}$X"}, own) == {
        "A": "/home/coder/a",
        "B": "/home/coder/a/b",
        "C": "c$X",
    }
    assert of({"PATH": "${PATH}:/opt", "NUL": "a\0b", "X=Y": "1", "": "1", "HOME": "/tmp", "GOOD": "1"}, own) == {
        "GOOD": "1"
    }
    # Each refers to the one before it twice.
    bomb = {"V0": "x" * 100} | {f"V{n + 1}": f"${{containerEnv:V{n}}}" * 2 for n in range(500)}
    assert of(bomb, own) == {}


def test_workspaced_and_codehub_agree_on_the_variables_that_are_codehubs() -> None:
    names = [*with_environment._OWN, *(f"{beginning}X" for beginning in with_environment._OWN_BEGINNINGS)]
    assert all(environment_names.is_own(name) for name in names)
    assert with_environment._OWN | {"PATH"} == environment_names._OWN
    assert environment_names._OWN_BEGINNINGS == with_environment._OWN_BEGINNINGS


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    process = run(tmp_path, "", ["no-such-program"])
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_the_hook_ends_at_once_and_leaves_a_helper_behind(tmp_path: Path) -> None:
    """Its output is closed: the kubelet waits for both before a container counts as running."""
    runtime = tmp_path / "run"
    launch = Launch(str(tmp_path), str(runtime), f"unix:{runtime}/workspaced.sock", "secret")
    words = hook_words(sys.executable, str(FOLDER), launch)
    done = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=60, check=True)
    assert done.stdout + done.stderr == b""
    left = _helpers_of(runtime)
    assert left
    deadline = time.monotonic() + 60
    while left:  # one may have started another in between
        assert time.monotonic() < deadline
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = _helpers_of(runtime)


def _helpers_of(runtime: Path) -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _writes_to_log(entry, runtime)]


def _writes_to_log(pid: str, runtime: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/1") == str(runtime / "workspaced.log")
    except OSError:
        return False


def test_a_hook_that_cannot_write_does_not_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    launch = Launch(str(tmp_path), str(tmp_path / "file/run"), "unix:x", "secret")
    words = hook_words(sys.executable, str(FOLDER), launch)
    done = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"workspaced: " in done.stderr
    assert b"secret" not in done.stderr


def test_the_workspaces_user_takes_the_place_of_an_images_user(tmp_path: Path) -> None:
    table = "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\ncoder:x:7:7::/:/bin/sh\ndev:x:8:8::/:\n"
    assert users.with_user(table, "coder:x:1000:1000::/home/coder:/bin/bash").splitlines() == [
        "root:x:0:0::/root:/bin/sh",
        "dev:x:8:8::/:",
        "coder:x:1000:1000::/home/coder:/bin/bash",
    ]
    users.main(str(tmp_path / "etc"), "/home/coder")
    own = [line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("coder:")]
    assert own[0].split(":")[2:6] == [str(os.getuid()), str(os.getgid()), "", "/home/coder"]
    assert (tmp_path / "etc/group").read_text().endswith(f"coder:x:{os.getgid()}:\n")
