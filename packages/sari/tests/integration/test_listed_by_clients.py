"""Gemini CLI and Claude Code, the real programs, find sari through what `sari install` wrote and connect to it.

Neither can be asked for a tool without a model, but both start every configured server for `mcp list`, and say how that
went. In a box without a network, as all of this must work without one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.sari.home import SARI, SariHome, sari_home
from testing.sari.parts import node_part

pytestmark = [pytest.mark.xdist_group("sari-clients"), pytest.mark.needs("npm", "bwrap")]

BOX = ("bwrap", "--dev-bind", "/", "/", "--unshare-net")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as made:
        made.write("main.py", "def needle():\n    pass\n")
        made.environment["LANG"] = "C.UTF-8"
        yield made


def listed(home: SariHome, *program: str) -> str:
    """What the client says of its servers, without colours, and whichever stream it says it on."""
    done: subprocess.CompletedProcess[str] = home.run(*BOX, *program, "mcp", "list")
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def gemini(home: SariHome) -> str:
    return listed(home, "node", str(node_part("gemini") / "node_modules/@google/gemini-cli/bundle/gemini.js"))


def claude(home: SariHome) -> str:
    return listed(home, str(next(node_part("claude").glob("node_modules/@anthropic-ai/claude-code-*/claude"))))


def install(home: SariHome, host: str, scope: str) -> None:
    done = home.sari("install", "--host", host, "--scope", scope)
    assert done.returncode == 0, done.stderr


def trust(home: SariHome) -> None:
    """What Gemini writes when a person answers that he trusts the folder."""
    trusted = home.home / ".gemini" / "trustedFolders.json"
    trusted.parent.mkdir(exist_ok=True)
    trusted.write_text(json.dumps({str(home.workspace): "TRUST_FOLDER"}))


def test_gemini_connects_to_sari_of_its_user_in_a_folder_it_trusts(home: SariHome) -> None:
    install(home, "gemini", "user")
    assert f"sari: {SARI} mcp (stdio) - Disabled" in gemini(home)
    assert "Gemini CLI does not trust" in home.sari("doctor", "--no-index").stdout, "doctor knows why"
    trust(home)
    assert f"sari: {SARI} mcp (stdio) - Connected" in gemini(home)
    assert "does not trust" not in home.sari("doctor", "--no-index").stdout


def test_gemini_connects_to_sari_of_a_project_it_trusts(home: SariHome) -> None:
    install(home, "gemini", "project")
    trust(home)
    assert f"sari: {SARI} mcp (stdio) - Connected" in gemini(home)


def test_claude_connects_to_sari_of_its_user(home: SariHome) -> None:
    install(home, "claude", "user")
    assert f"sari: {SARI} mcp - ✔ Connected" in claude(home)
    # It has written its own things into the file by now; they stay, and sari goes.
    file = home.home / ".claude.json"
    assert len(json.loads(file.read_text())) > 1
    assert home.sari("uninstall", "--host", "claude").returncode == 0
    assert "sari" not in json.loads(file.read_text()).get("mcpServers", {})
    assert "sari" not in claude(home)


def test_claude_connects_to_sari_of_a_project_once_that_is_approved(home: SariHome) -> None:
    install(home, "claude", "project")
    assert f"sari: {SARI} mcp - ⏸ Pending approval" in claude(home)
    approval = home.home / ".claude" / "settings.json"
    approval.parent.mkdir(exist_ok=True)
    approval.write_text(json.dumps({"enabledMcpjsonServers": ["sari"]}))
    assert f"sari: {SARI} mcp - ✔ Connected" in claude(home)
