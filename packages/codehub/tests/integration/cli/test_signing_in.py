"""`codehub login`, what it keeps, and what the commands say without it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from testing.codehub.dashboard import PASSWORD, DashboardServer

from .conftest import Command


async def test_a_token_is_kept_for_its_owner_only_and_revoked_on_logout(codehub: Command, tmp_path: Path) -> None:
    assert (await codehub("ws", "ls")).code == 3
    await codehub.ok("login", "-u", "admin", "--password-stdin", stdin=f"{PASSWORD}\n")
    kept = tmp_path / ".config/codehub/credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    token = json.loads(kept.read_text())["servers"][codehub.server.url]["token"]
    assert token.startswith("cht_")
    assert PASSWORD not in kept.read_text()
    await codehub.ok("ws", "ls")
    said = await codehub.ok("logout")
    assert "revoked it" in said
    again = await codehub("ws", "ls", CODEHUB_TOKEN=token)
    assert (again.code, "codehub login" in again.err) == (3, True)


async def test_a_wrong_password_is_said_and_nothing_is_kept(codehub: Command, tmp_path: Path) -> None:
    failed = await codehub("login", "-u", "admin", "--password-stdin", stdin="wrong\n")
    assert failed.code == 3
    assert "wrong user name or password" in failed.err
    assert not (tmp_path / ".config/codehub/credentials.json").exists()


async def test_a_server_that_does_not_answer_says_how_to_start_or_name_one(
    codehub: Command, dashboard: DashboardServer
) -> None:
    await dashboard.stop()
    failed = await codehub("ws", "ls", CODEHUB_TOKEN="cht_x")
    assert failed.code == 7
    assert "codehub up" in failed.err
    assert "--server" in failed.err


async def test_the_shell_completes_commands_and_names(signed_in: Command) -> None:
    await signed_in.ok("ws", "create", "thesis", "--no-start")
    script = await signed_in.ok("completion", "bash")
    assert "_CODEHUB_COMPLETE=bash_complete" in script
    completed = await signed_in(_CODEHUB_COMPLETE="bash_complete", COMP_WORDS="codehub ws show th", COMP_CWORD="3")
    assert "thesis" in completed.out
    away = await signed_in(
        _CODEHUB_COMPLETE="bash_complete", COMP_WORDS="codehub ws show th", COMP_CWORD="3", CODEHUB_TOKEN="cht_no"
    )
    assert (away.out.strip(), away.err) == ("", "")


async def test_a_codehub_on_this_machine_is_not_looked_for_behind_the_companys_proxy(signed_in: Command) -> None:
    assert "No workspaces" in (await signed_in("ws", "ls", HTTP_PROXY="http://127.0.0.1:9")).err
