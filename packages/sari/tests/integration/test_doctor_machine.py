"""`sari doctor` finds problems of the installation and says how to fix them."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sari.diagnostics.machine_checks import watch_finding
from testing.sari.home import sari_home
from testing.sari.processes import wait_until

SARI = str(Path(sys.executable).with_name("sari"))


class Machine:
    """A machine to examine: a home and a workspace of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "work"
        (self.workspace / ".git").mkdir(parents=True)
        self.home.mkdir()
        # Only what the checks need: a `sari` elsewhere on the real path is not the machine's under test.
        self.path = folder / "bin"
        self.path.mkdir()
        self.environment = {"HOME": str(self.home), "PATH": str(self.path)}
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            ports = (str(free.getsockname()[1]), str(other.getsockname()[1]))
        self.environment["SARI_DAEMON_PORT"], self.environment["SARI_HTTP_PORT"] = ports

    def sari(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SARI, *words],
            cwd=self.workspace,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def examine(self) -> list[dict[str, str]]:
        done = self.sari("doctor", "--no-index", "--json")
        assert done.stdout, done.stderr
        findings: list[dict[str, str]] = json.loads(done.stdout)
        assert done.returncode == int(any(finding["level"] == "error" for finding in findings))
        return findings

    def finds(self, about: str) -> dict[str, str]:
        """The one finding about something."""
        found = [finding for finding in self.examine() if about in finding["what"]]
        assert len(found) == 1, found
        return found[0]

    def program(self, name: str, version: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho sari {version}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_healthy_machine_has_nothing_wrong(machine: Machine) -> None:
    (machine.path / "sari").symlink_to(SARI)
    assert machine.sari("install", "--host", "codex").returncode == 0
    findings = machine.examine()
    assert [finding for finding in findings if finding["level"] == "error"] == []
    assert any("Codex CLI" in finding["what"] and f"starts {SARI}" in finding["what"] for finding in findings)


def test_two_versions_on_the_path_are_found(machine: Machine) -> None:
    (machine.path / "sari").symlink_to(SARI)
    other = machine.program("second/sari", "0.1.26")
    machine.environment["PATH"] += f":{other.parent}"
    finding = machine.finds("several versions")
    assert finding["level"] == "error"
    assert "0.1.26" in finding["what"]
    assert "remove" in finding["fix"]
    # The name of the field in version 3.0, kept for one release.
    assert finding["mend"] == finding["fix"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "/gone/sari", "args": ["mcp"]}, "no longer exists"),
        ({"command": "sari", "args": ["mcp"]}, "client's own path"),
        ({"command": SARI, "args": []}, "do not name `mcp`"),
        ({"url": "http://127.0.0.1:1/mcp"}, "no command"),
        ({"command": "OLD", "args": ["mcp"]}, "sari 0.1.26"),
    ],
)
def test_a_stale_client_entry_is_found_and_install_fixes_it(
    machine: Machine, entry: dict[str, object], says: str
) -> None:
    if entry.get("command") == "OLD":
        entry = {**entry, "command": str(machine.program("old/sari", "0.1.26"))}
    (machine.home / ".claude.json").write_text(json.dumps({"mcpServers": {"sari": entry}}))
    finding = machine.finds("Claude Code:")
    assert finding["level"] == "error"
    assert says in finding["what"]
    assert finding["fix"] == "sari install --host claude --scope user"
    assert machine.sari("install", "--host", "claude").returncode == 0
    assert machine.finds("Claude Code:")["level"] == "ok"


def test_a_client_file_nobody_can_read_is_found(machine: Machine) -> None:
    (machine.workspace / ".mcp.json").write_text("{,}")
    finding = machine.finds("Claude Code (this project)")
    assert finding["level"] == "error"
    assert "line 1" in finding["what"]


def test_a_client_environment_that_hides_the_registry_is_found(machine: Machine) -> None:
    assert machine.sari("install", "--host", "codex").returncode == 0
    machine.environment["SARI_REGISTRY_FILE"] = str(machine.home / "elsewhere" / "server.json")
    finding = machine.finds("Codex CLI:")
    assert finding["level"] == "error"
    assert "SARI_REGISTRY_FILE" in finding["what"]
    assert machine.sari("install", "--host", "codex").returncode == 0
    assert machine.finds("Codex CLI:")["level"] == "ok"


def test_a_damaged_registry_is_reported_before_and_after_it_was_rebuilt(machine: Machine) -> None:
    folder = machine.home / ".local" / "share" / "sari"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text("{ not a registry")
    findings = [finding for finding in machine.examine() if "damaged" in finding["what"]]
    assert findings
    assert all(finding["fix"] for finding in findings)
    assert machine.finds("was found damaged")["level"] == "warning"
    assert json.loads((folder / "server.json").read_text())["version"] == "2.0"


def test_a_port_somebody_else_holds_is_reported(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        machine.environment["SARI_DAEMON_PORT"] = str(port)
        assert machine.finds(f"port {port}")["level"] == "warning"


def test_a_port_somebody_else_holds_is_reported_with_the_one_that_is_used_instead(tmp_path: Path) -> None:
    """It said that the ports were free, or ours, as soon as a daemon ran on others."""
    with (
        socket.create_server(("127.0.0.1", 0)) as stranger,
        socket.create_server(("127.0.0.1", 0)) as other,
        sari_home(tmp_path) as home,
    ):
        taken = [server.getsockname()[1] for server in (stranger, other)]
        home.environment["SARI_DAEMON_PORT"], home.environment["SARI_HTTP_PORT"] = map(str, taken)
        home.environment["SARI_WORKSPACE_IDLE_SEC"] = "600"
        home.write("a.txt", "needle\n")
        assert home.sari("symbols", "needle").returncode == 1
        info = home.info()
        said = home.sari("doctor", "--no-index").stdout
        assert f"port {taken[0]} (SARI_DAEMON_PORT) is held by another program; {info['port']} is used" in said
        assert f"port {taken[1]} (SARI_HTTP_PORT) is held by another program; {info['http_port']} is used" in said


def test_a_damaged_index_is_found_and_rebuilt_by_the_next_daemon(tmp_path: Path) -> None:
    with sari_home(tmp_path) as home:
        home.environment["SARI_WORKSPACE_IDLE_SEC"] = "600"
        home.write("a.txt", "needle\n")
        assert home.sari("search", "needle").returncode == 0
        folder = home.home / ".local" / "share" / "sari" / "index"
        wait_until(lambda: list(folder.glob("*/*.seg")), "the index is written")
        segment = next(folder.glob("*/*.seg"))
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF
        segment.write_bytes(data)
        sick = home.sari("doctor")
        assert sick.returncode == 1
        assert "error   index, segments: 1 damaged" in sick.stdout
        assert "→ They are rebuilt" in sick.stdout
        assert home.sari("daemon", "restart").returncode == 0
        assert home.sari("search", "needle").stdout.startswith("a.txt:1")
        wait_until(lambda: "index, segments: 0 damaged" in home.sari("doctor").stdout, "it was rebuilt")


def test_a_workspace_larger_than_the_watch_limit_is_found(tmp_path: Path) -> None:
    limits, workspace = tmp_path / "limits", tmp_path / "work"
    limits.mkdir()
    (limits / "max_user_watches").write_text("20\n")
    (limits / "max_user_instances").write_text("128\n")
    for number in range(30):
        (workspace / str(number)).mkdir(parents=True)
    finding = watch_finding(workspace, limits)
    assert finding.level == "error"
    assert "sysctl" in finding.fix
    (limits / "max_user_watches").write_text("1000000\n")
    assert watch_finding(workspace, limits).level == "ok"
    assert watch_finding(workspace, tmp_path / "none").level == "ok"
