"""Client configurations that a repository contains: `sari doctor` reads regular files of a bounded size only, and `sari
install` and `uninstall` write nothing outside of the project through a project's links.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SARI = str(Path(sys.executable).with_name("sari"))
_FILES = (".codex/config.toml", ".gemini/settings.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")


class Project:
    """A home, and a repository in which `sari` is called."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root = folder / "home", folder / "repo"
        (self.root / ".git").mkdir(parents=True)
        self.home.mkdir()
        self.environment = {
            "HOME": str(self.home), "PATH": os.environ["PATH"], "SARI_DAEMON_PORT": "0", "SARI_HTTP_PORT": "0",
        }  # fmt: skip

    def sari(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [SARI, *words],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def place(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "huge", "deep"])
def test_doctor_and_install_end_with_a_reason_on_files_that_are_no_configuration(project: Project, kind: str) -> None:
    for name in _FILES:
        path = place(project.root, name)
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "huge":
                with path.open("wb") as out:
                    out.truncate(200 << 20)
            case _:
                path.write_text("a = " + "[" * 500_000 if name.endswith(".toml") else "[" * 500_000)
    done = project.sari("doctor", "--no-index", "--json")
    found = [one["what"] for one in json.loads(done.stdout) if "(this project)" in one["what"]]
    assert len(found) == len(_FILES), done.stderr
    assert all("cannot be read" in one for one in found)
    before = {name: os.lstat(project.root / name) for name in _FILES}
    installed = project.sari("install", "--host", "all", "--scope", "project", "--no-instructions")
    assert installed.returncode == 1
    assert {name: os.lstat(project.root / name).st_ino for name in _FILES} == {
        name: state.st_ino for name, state in before.items()
    }


@pytest.mark.parametrize("folder", [True, False], ids=["a linked folder", "a linked file"])
def test_a_projects_links_lead_neither_install_nor_uninstall_out_of_it(project: Project, folder: bool) -> None:
    private = project.home / "private"
    for name in (*_FILES, "AGENTS.md", "CLAUDE.md", "GEMINI.md"):
        target = private / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("" if name.endswith((".toml", ".md")) else "{}")
        if folder and "/" in name:
            (project.root / name).parent.symlink_to(target.parent)
        else:
            place(project.root, name).symlink_to(target)
    before = {path: path.read_bytes() for path in private.rglob("*") if path.is_file()}
    done = project.sari("install", "--host", "all", "--scope", "project", "--instructions")
    assert done.returncode == 1
    assert done.stderr.count("leads out of the project") == 8, done.stderr
    assert {path: path.read_bytes() for path in private.rglob("*") if path.is_file()} == before
    for path in before:
        path.write_text(
            '[mcp_servers.sari]\ncommand = "x"\n' if path.suffix == ".toml" else '{"mcpServers":{"sari":{}}}'
        )
    there = {path: path.read_bytes() for path in before}
    assert project.sari("uninstall", "--host", "all", "--scope", "project").returncode == 1
    assert {path: path.read_bytes() for path in before} == there
    findings = json.loads(project.sari("doctor", "--no-index", "--json").stdout)
    assert sum("leads out of the project" in one["what"] for one in findings) == 5


def test_links_within_a_project_and_the_users_own_links_are_followed(project: Project) -> None:
    (project.root / "shared.json").write_text("{}")
    (project.root / ".mcp.json").symlink_to("shared.json")
    dotfiles = project.home / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "claude.json").write_text("{}")
    (project.home / ".claude.json").symlink_to(dotfiles / "claude.json")
    for scope, target in (("project", project.root / "shared.json"), ("user", dotfiles / "claude.json")):
        done = project.sari("install", "--host", "claude", "--scope", scope, "--no-instructions")
        assert done.returncode == 0, done.stderr
        assert "sari" in json.loads(target.read_text())["mcpServers"]
        assert project.sari("uninstall", "--host", "claude", "--scope", scope).returncode == 0
        assert target.read_text() == "{}"
    assert (project.root / ".mcp.json").is_symlink()
    assert (project.home / ".claude.json").is_symlink()


def test_doctor_runs_no_sari_of_the_project(project: Project) -> None:
    mark = project.home / "mark"
    (project.root / "sari").write_text(f"#!/bin/sh\necho run >> {mark}\n")
    (project.root / "sari").chmod(0o755)
    project.environment["PATH"] = f".:{project.root}:{project.environment['PATH']}"
    assert project.sari("doctor", "--no-index").stdout
    assert not mark.exists()
