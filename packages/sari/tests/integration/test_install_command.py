"""`sari install` and `uninstall` as a person runs them, on good files and on bad ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SARI = str(Path(sys.executable).with_name("sari"))
HOSTS = ("codex", "gemini", "claude", "cursor", "vscode")


class Home:
    """One person's machine: a home, a project, and sari run in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "hö me"
        self.project = folder / "pro ject"
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()
        self.environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def sari(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(SARI, *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def files(self) -> dict[str, bytes]:
        """Everything but sari's own folder."""
        own = self.home / ".local"
        return {
            str(path): path.read_bytes()
            for folder in (self.home, self.project)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and own not in path.parents
        }


@pytest.fixture
def person(tmp_path: Path) -> Home:
    return Home(tmp_path)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("scope", ["user", "project"])
def test_all_clients_are_configured_twice_and_undone_exactly(person: Home, scope: str) -> None:
    root = person.home if scope == "user" else person.project
    write(root / ".codex/config.toml", '# mine\nmodel = "x"\n')
    write(root / ".cursor/mcp.json", '{\n  // mine\n  "mcpServers": {},\n}')
    before = person.files()

    dry = person.sari("install", "--host", "all", "--scope", scope, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("+++") == 5
    assert person.files() == before

    first = person.sari("install", "--host", "all", "--scope", scope)
    assert first.returncode == 0, first.stderr
    there = person.files()
    assert len(there) == 5
    assert all(SARI.encode() in data for data in there.values())
    assert b"# mine" in there[str(root / ".codex/config.toml")]
    assert b"// mine" in there[str(root / ".cursor/mcp.json")]

    again = person.sari("install", "--host", "all", "--scope", scope)
    assert again.stdout.count("nothing to change") == 5
    assert person.files() == there

    gone = person.sari("uninstall", "--host", "all", "--scope", scope)
    assert gone.returncode == 0, gone.stderr
    assert person.files() == before
    assert person.sari("uninstall", "--host", "all", "--scope", scope).stdout.count("nothing to change") == 5


def test_what_was_changed_meanwhile_stays_and_only_the_entry_goes(person: Home) -> None:
    path = write(person.home / ".claude.json", '{\n  "numStartups": 1\n}\n')
    person.sari("install", "--host", "claude")
    path.write_text(path.read_text().replace('"numStartups": 1', '"numStartups": 2'))
    person.sari("uninstall", "--host", "claude")
    assert path.read_text() == '{\n  "numStartups": 2\n}\n'


def test_an_entry_that_was_there_before_comes_back(person: Home) -> None:
    text = '[mcp_servers.sari]\nurl = "http://x/mcp"\nenabled = false\n'
    path = write(person.home / ".codex/config.toml", text)
    person.sari("install", "--host", "codex")
    assert "url" not in path.read_text()
    assert "enabled" not in path.read_text(), "an entry that sari installs is switched on"
    person.sari("uninstall", "--host", "codex")
    assert path.read_text() == text


@pytest.mark.parametrize("before", [None, '# mine\nmodel = "x"\n'])
def test_an_entry_that_was_changed_and_installed_again_is_removed(person: Home, before: str | None) -> None:
    path = person.home / ".codex/config.toml"
    if before is not None:
        write(path, before)
    person.sari("install", "--host", "codex")
    path.write_text(path.read_text().replace("[mcp_servers.sari]\n", "[mcp_servers.sari]\nenabled = false\n"))
    person.sari("install", "--host", "codex")
    assert "enabled" not in path.read_text()
    person.sari("uninstall", "--host", "codex")
    # A blank line may stay: the text that the first install added is no longer there to be taken back exactly.
    assert (path.read_text().rstrip() + "\n" if path.exists() else None) == before


def test_a_registry_elsewhere_is_passed_to_the_client_whose_environment_would_hide_it(person: Home) -> None:
    person.environment["SARI_REGISTRY_FILE"] = str(person.home / "elsewhere" / "server.json")
    person.sari("install", "--host", "codex")
    assert (
        f'SARI_REGISTRY_FILE = "{person.home}/elsewhere/server.json"'
        in (person.home / ".codex/config.toml").read_text()
    )
    assert (person.home / "elsewhere" / "install").is_dir()


@pytest.mark.parametrize(
    ("host", "file", "data", "says"),
    [
        ("codex", ".codex/config.toml", b"a = 1\nb = [\n", "line 2"),
        ("codex", ".codex/config.toml", b"mcp_servers = 7\n", "line 1"),
        ("claude", ".claude.json", b'{\n "a": 1,,\n}', "line 2"),
        ("claude", ".claude.json", b'{\n "mcpServers": "x"\n}', "line 2"),
        ("gemini", ".gemini/settings.json", b'{"a": "\xff"}', "not UTF-8"),
        ("vscode", ".config/Code/User/mcp.json", b"\x00\x01\x02", "line 1"),
    ],
)
def test_a_file_that_is_not_understood_is_left_untouched_and_says_what_to_add(
    person: Home, host: str, file: str, data: bytes, says: str
) -> None:
    path = person.home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    before = person.files()
    answer = person.sari("install", "--host", "all")
    assert answer.returncode == 1
    assert says in answer.stderr
    assert str(path) in answer.stderr
    assert path.read_bytes() == data
    assert len(person.files()) == 5, "the others are written all the same"
    assert "by hand" in answer.stderr
    assert SARI in answer.stderr
    person.sari("uninstall", "--host", "all")
    assert person.files() == before


def test_a_linked_configuration_stays_a_link_and_keeps_its_mode(person: Home) -> None:
    real = write(person.home / "dotfiles/claude.json", "{}\n")
    real.chmod(0o640)
    link = person.home / ".claude.json"
    link.symlink_to(real)
    assert person.sari("install", "--host", "claude").returncode == 0
    assert link.is_symlink()
    assert b"sari" in real.read_bytes()
    assert real.stat().st_mode & 0o777 == 0o640
    assert person.sari("uninstall", "--host", "claude").returncode == 0
    assert link.is_symlink()
    assert real.read_text() == "{}\n"


def test_a_link_to_itself_and_a_folder_in_its_place_are_refused_plainly(person: Home) -> None:
    (person.home / ".claude.json").symlink_to(person.home / ".claude.json")
    (person.home / ".cursor" / "mcp.json").mkdir(parents=True)
    answer = person.sari("install", "--host", "all")
    assert answer.returncode == 1
    assert "leads back to itself" in answer.stderr
    assert "not a regular file" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("writable", ["nothing", "sari's own folder"])
def test_a_read_only_home_is_said_plainly(person: Home, writable: str) -> None:
    path = write(person.home / ".codex/config.toml", "a = 1\n")
    own = person.home / ".local/share/sari"
    own.mkdir(parents=True)
    box = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    if writable != "nothing":
        box += ["--bind", str(own), str(own)]
    answer = person.run(*box, SARI, "install", "--host", "codex")
    assert answer.returncode == 1, answer.stdout
    assert ("cannot be written" if writable != "nothing" else "nothing was changed") in answer.stderr
    assert "Traceback" not in answer.stderr
    assert path.read_text() == "a = 1\n"
    assert list(own.rglob("*.json")) == [], "no receipt of what was not done"


def test_instructions_are_shown_added_and_removed_with_every_byte_around_them(person: Home) -> None:
    mine = write(person.home / ".claude/CLAUDE.md", "# My rules\n\nBe brief.")
    before = person.files()
    shown = person.sari("install", "--host", "all", "--instructions", "--dry-run")
    assert "use the sari MCP tools before grep" in shown.stdout
    assert person.files() == before
    assert person.sari("install", "--host", "all", "--instructions").returncode == 0
    assert "Be brief." in mine.read_text()
    for path in (".claude/CLAUDE.md", ".codex/AGENTS.md", ".gemini/GEMINI.md"):
        assert "use the sari MCP tools before grep" in (person.home / path).read_text()
    removed = person.sari("uninstall", "--host", "all")
    assert removed.returncode == 0, removed.stderr
    assert person.files() == before


def test_a_script_that_does_not_ask_for_instructions_gets_none(person: Home) -> None:
    assert person.sari("install", "--host", "codex").returncode == 0
    assert not (person.home / ".codex/AGENTS.md").exists()


def test_instructions_in_a_project_survive_edits_around_them(person: Home) -> None:
    assert person.sari("install", "--host", "gemini", "--scope", "project", "--instructions").returncode == 0
    file = person.project / "GEMINI.md"
    file.write_text(f"# Ours\n{file.read_text()}More of ours.\n")
    assert person.sari("uninstall", "--host", "gemini", "--scope", "project").returncode == 0
    assert file.read_text() == "# Ours\nMore of ours.\n"
