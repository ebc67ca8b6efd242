"""`sari doctor` finds what goes wrong around sari, and says how to mend it."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sari.install.checks import watch_check

SARI = str(Path(sys.executable).with_name("sari"))


class Patient:
    """A machine to examine: a home and a workspace of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "work"
        (self.workspace / ".git").mkdir(parents=True)
        self.home.mkdir()
        # Only what the checks need: a `sari` elsewhere on the real path is not this patient's.
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

    def examine(self) -> dict[str, dict[str, str]]:
        done = self.sari("doctor", "--no-index", "--json")
        assert done.stdout, done.stderr
        checks = {check["name"]: check for check in json.loads(done.stdout)}
        assert done.returncode == int(any(check["level"] == "wrong" for check in checks.values()))
        return checks

    def program(self, name: str, version: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho sari {version}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    return Patient(tmp_path)


def test_a_healthy_machine_has_nothing_wrong(patient: Patient) -> None:
    (patient.path / "sari").symlink_to(SARI)
    assert patient.sari("install", "--host", "codex").returncode == 0
    checks = patient.examine()
    assert {name for name, check in checks.items() if check["level"] == "wrong"} == set()
    assert checks["Codex CLI"]["level"] == "fine"
    assert checks["Claude Code"]["level"] == "note"


def test_two_versions_on_the_path_are_found(patient: Patient) -> None:
    (patient.path / "sari").symlink_to(SARI)
    other = patient.program("second/sari", "0.1.26")
    patient.environment["PATH"] += f":{other.parent}"
    check = patient.examine()["command"]
    assert check["level"] == "wrong"
    assert "0.1.26" in check["detail"]
    assert "Remove" in check["mend"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "/gone/sari", "args": ["mcp"]}, "not there any more"),
        ({"command": "sari", "args": ["mcp"]}, "client's own path"),
        ({"command": SARI, "args": []}, "do not name `mcp`"),
        ({"url": "http://127.0.0.1:1/mcp"}, "no command"),
        ({"command": "OLD", "args": ["mcp"]}, "sari 0.1.26"),
    ],
)
def test_a_stale_client_entry_is_found_and_install_mends_it(
    patient: Patient, entry: dict[str, object], says: str
) -> None:
    if entry.get("command") == "OLD":
        entry = {**entry, "command": str(patient.program("old/sari", "0.1.26"))}
    (patient.home / ".claude.json").write_text(json.dumps({"mcpServers": {"sari": entry}}))
    check = patient.examine()["Claude Code"]
    assert check["level"] == "wrong"
    assert says in check["detail"]
    assert "sari install --host claude --scope user" in check["mend"]
    assert patient.sari("install", "--host", "claude").returncode == 0
    assert patient.examine()["Claude Code"]["level"] == "fine"


def test_a_client_file_nobody_can_read_is_found(patient: Patient) -> None:
    (patient.workspace / ".mcp.json").write_text("{,}")
    check = patient.examine()["Claude Code (this project)"]
    assert check["level"] == "wrong"
    assert "line 1" in check["detail"]


def test_a_client_environment_that_hides_the_registry_is_found(patient: Patient) -> None:
    assert patient.sari("install", "--host", "codex").returncode == 0
    patient.environment["SARI_REGISTRY_FILE"] = str(patient.home / "elsewhere" / "server.json")
    check = patient.examine()["Codex CLI"]
    assert check["level"] == "wrong"
    assert "SARI_REGISTRY_FILE" in check["detail"]
    assert patient.sari("install", "--host", "codex").returncode == 0
    assert patient.examine()["Codex CLI"]["level"] == "fine"


def test_a_damaged_registry_is_set_aside_and_told_of(patient: Patient) -> None:
    folder = patient.home / ".local" / "share" / "sari"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text("{ not a registry")
    check = patient.examine()["registry"]
    assert check["level"] == "note"
    assert "damaged" in check["detail"]
    assert (folder / "server.json").read_text().startswith("{")


@pytest.mark.needs("bwrap")
def test_a_registry_that_cannot_be_written_is_found(patient: Patient) -> None:
    folder = patient.home / ".local" / "share" / "sari"
    folder.mkdir(parents=True)
    box = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", SARI, "doctor", "--no-index", "--json"]
    done = subprocess.run(
        box,
        cwd=patient.workspace,
        env={**patient.environment, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["registry"]["level"] == "wrong"
    assert "cannot be written" in checks["registry"]["detail"]


def test_a_port_somebody_else_holds_is_told_of(patient: Patient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        patient.environment["SARI_DAEMON_PORT"] = str(port)
        check = patient.examine()[f"port {port}"]
    assert check["level"] == "note"
    assert "another program" in check["detail"]


def test_a_workspace_larger_than_the_watch_limit_is_found(tmp_path: Path) -> None:
    limits, workspace = tmp_path / "limits", tmp_path / "work"
    limits.mkdir()
    (limits / "max_user_watches").write_text("20\n")
    (limits / "max_user_instances").write_text("128\n")
    for number in range(30):
        (workspace / str(number)).mkdir(parents=True)
    check = watch_check(workspace, limits)
    assert check.level == "wrong"
    assert "sysctl" in check.mend
    (limits / "max_user_watches").write_text("1000000\n")
    assert watch_check(workspace, limits).level == "fine"
    assert watch_check(workspace, tmp_path / "none").level == "fine"
