"""What the command prints and exits with where people and scripts stumbled: narrow terminals, pipes, asking twice."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testing.codehub.dashboard import ARCHIVED, PASSWORD, RUNNING, Stage

from .conftest import Command

CODEHUB = str(Path(sys.executable).with_name("codehub"))


async def test_a_narrow_terminal_shows_names_and_whole_ids(signed_in: Command, stage: Stage) -> None:
    name = "a-name-as-long-as-some-are"
    workspace_id = await stage.add(name, **RUNNING)
    out = await signed_in.ok("ws", "ls", COLUMNS="80")
    heading, line = out.splitlines()
    assert {"NAME", "STATUS", "ID"} <= set(heading.split())
    assert name in line
    assert workspace_id in line
    assert max(map(len, out.splitlines())) <= 80
    wide = await signed_in.ok("ws", "ls", COLUMNS="200")
    assert "LAST USED" in wide


async def test_sizes_on_disk_are_shown_and_too_large_ones_are_warned_of(signed_in: Command, stage: Stage) -> None:
    home: dict[str, Any] = {"home_ctx": {"incarnation": "inc-1"}, "disk_bytes": 3 * 10**9}
    small = {
        "name": "web",
        "version": 1,
        "image_ref": "code-server",
        "profile": "code-server",
        "size": {"disk_bytes": 10**9},
    }
    await stage.add("free", **RUNNING, **home)
    await stage.add("large", **RUNNING, **home, template=small)
    await stage.add("new", **RUNNING)
    warning = "Its files use 3.0 GB, more than its disk size of 1.0 GB. Delete files that you do not need."
    listed = await signed_in("ws", "ls")
    assert listed.err.splitlines() == [f"large: {warning}"]
    assert warning not in listed.out, "the table stays a table"
    for name, size in (("free", "3.0 GB"), ("large", "3.0 GB of 1.0 GB"), ("new", "not measured")):
        shown = await signed_in.ok("ws", "show", name)
        assert next(line for line in shown.splitlines() if "On disk" in line).split("On disk")[1].strip() == size
        assert (warning in shown) == (name == "large")


async def test_asking_for_what_is_there_is_no_error(signed_in: Command, stage: Stage) -> None:
    await stage.add("api", **RUNNING)
    await stage.add("old", **ARCHIVED)
    assert await signed_in.ok("ws", "start", "api") == "api: already running\n"
    assert await signed_in.ok("ws", "archive", "old") == "old: already archived\n"


async def test_the_demo_leaves_a_workspace_of_the_same_name_alone(signed_in: Command, stage: Stage) -> None:
    own = await stage.add("hello", **RUNNING)
    done = await signed_in("demo", "--no-wait")
    assert (done.code, done.err) == (0, "")
    assert {line.split()[0] for line in done.out.splitlines()[1:4]} == {
        "weekend-project",
        "last-years-thesis",
        "idea",
    }
    await signed_in.ok("demo", "--remove")
    assert (await stage.row(own))["desired_state"] == "RUNNING"


async def test_config_ssh_without_a_terminal_names_the_option(signed_in: Command, tmp_path: Path) -> None:
    done = await signed_in("config-ssh")
    assert done.code == 2
    assert "without a terminal use --yes" in done.err
    assert not (tmp_path / ".ssh/config").exists()


async def test_an_error_is_reported_in_full_sentences(signed_in: Command, stage: Stage) -> None:
    lost = {"phase": "ERROR", "error_reason": "DataLost", "error_message": "the home is recorded, but it is missing"}
    await stage.add("lost", **lost)
    assert (await signed_in.ok("ws", "show", "lost")).splitlines()[-1] == (
        "Its home is not where it was left (the home is recorded, but it is missing). "
        "Recover it from one of its archives (`codehub admin recover`), or delete it."
    )
    refused = await signed_in("admin", "recover", "lost")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[-1] == "Choose with --archive-key KEY or --empty-home."


async def test_running_workspaces_are_listed_first_then_those_used_last(signed_in: Command, stage: Stage) -> None:
    used = {name: datetime(2026, 11, day, tzinfo=UTC) for name, day in (("works", 1), ("older", 2), ("newer", 3))}
    await stage.add("newer", **ARCHIVED, last_access_at=used["newer"])
    await stage.add("works", **RUNNING, last_access_at=used["works"])
    await stage.add("older", **ARCHIVED, last_access_at=used["older"])
    listed = (await signed_in.ok("ws", "ls")).splitlines()[1:]
    assert [line.split()[0] for line in listed] == ["works", "newer", "older"]


async def test_restart_stops_and_starts(signed_in: Command, stage: Stage) -> None:
    workspace_id = await stage.add("api", **RUNNING)
    restart = asyncio.create_task(signed_in("ws", "restart", "api"))
    await stage.until(workspace_id, desired_state="STANDBY")
    await stage.change(workspace_id, phase="STANDBY")
    await stage.until(workspace_id, desired_state="RUNNING")
    await stage.change(workspace_id, **RUNNING)
    done = await restart
    assert (done.code, done.out) == (0, "api: Running\n"), done


async def test_whoami_names_user_and_server(signed_in: Command) -> None:
    assert await signed_in.ok("whoami") == f"admin (administrator) on {signed_in.server.url}\n"
    assert json.loads(await signed_in.ok("whoami", "--json"))["user"]["username"] == "admin"
    await signed_in.ok("logout")
    for options in ((), ("--json",)):
        nobody = await signed_in("whoami", *options)
        assert (nobody.code, "codehub login" in nobody.err, "Traceback" in nobody.err) == (3, True, False), nobody


async def test_login_takes_the_server_like_every_other_command(codehub: Command) -> None:
    failed = await codehub("login", "--server", "http://127.0.0.1:9", "-u", "ada", "--password-stdin", stdin="x")
    assert (failed.code, "http://127.0.0.1:9 does not answer" in failed.err) == (7, True), failed


async def test_signing_in_without_a_terminal_says_how(codehub: Command) -> None:
    failed = await codehub("login")
    assert (failed.code, "--password-stdin" in failed.err, "Traceback" in failed.err) == (2, True, False), failed


async def test_hints_are_given_only_where_they_fit(codehub: Command, signed_in: Command, stage: Stage) -> None:
    wrong = await codehub("login", "-u", "ada", "--password-stdin", stdin="no\n")
    assert (wrong.code, wrong.err) == (3, "codehub: wrong user name or password\n")
    await stage.add("api")
    known = {"CODEHUB_PASSWORD": PASSWORD}
    await signed_in.ok("admin", "users", "add", "ada", "--password-stdin", stdin="long enough\n", **known)
    await signed_in.ok("admin", "transfer", "api", "ada", **known)
    owner = await signed_in("admin", "users", "rm", "ada", **known)
    hint = "codehub: ada owns 1 workspace: `codehub admin users offboard ada` hands them on first\n"
    assert (owner.code, owner.err) == (6, hint)
    unasked = await signed_in("admin", "users", "ls")
    assert (unasked.code, "CODEHUB_PASSWORD" in unasked.err, "echoed" in unasked.err) == (2, True, False), unasked


async def test_output_that_goes_nowhere_is_no_traceback(signed_in: Command, stage: Stage) -> None:
    await stage.add("api")
    environment = {
        "HOME": str(signed_in.home),
        "PATH": os.environ["PATH"],
        "CODEHUB_SERVER": signed_in.server.url,
        "CODEHUB_DATA_DIR": str(signed_in.home / "data"),
    }

    def run(stdout: int) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [CODEHUB, "ws", "ls"], env=environment, stdout=stdout, stderr=subprocess.PIPE, timeout=120, check=False
        )

    full = os.open("/dev/full", os.O_WRONLY)
    done = await asyncio.to_thread(run, full)
    os.close(full)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False), done
    assert done.stderr == b"codehub: the output cannot be written: No space left on device\n"
    closed = ["sh", "-c", 'exec "$0" ws ls >&-', CODEHUB]
    done = await asyncio.to_thread(
        subprocess.run, closed, env=environment, stderr=subprocess.PIPE, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    reader, writer = os.pipe()
    os.close(reader)
    done = await asyncio.to_thread(run, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b""), done


def test_a_command_that_asks_no_server_loads_no_http_client_and_no_tables() -> None:
    code = "import sys; import codehub.cli.ws; print([n for n in ('httpx', 'rich', 'psycopg', 'ssl') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def test_colours_are_for_terminals() -> None:
    mine, theirs = pty.openpty()
    code = (
        "from codehub.cli.output import status_text, print_table;"
        "print_table(['A'], [[status_text({'status': 'ERROR', 'summary': {'label': 'Error'}})]])"
    )
    subprocess.run([sys.executable, "-c", code], stdout=theirs, timeout=120, check=True)
    assert b"\x1b[31mError" in os.read(mine, 1000)
    os.close(mine)
    os.close(theirs)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert plain.stdout == b"A\nError\n"
