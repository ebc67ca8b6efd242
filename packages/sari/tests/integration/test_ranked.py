"""`search` in `ranked` mode on a small repository: it finds the place, keeps up with edits, and survives restarts."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.protocol.tooling import ToolResult
from sari.ranking.git_log import read_history
from sari.tools.workspace import Workspace, open_workspace
from testing.sari import trees
from testing.sari.processes import wait_until


class OneCall:
    """A call nobody cancels."""

    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


_FILES = {
    "auth/session.py": '''"""Sessions."""


class SessionStore:
    def load(self, key):
        return self.entries[key]

    def purge_expired(self, now):
        """Delete the sessions whose lifetime is over."""
        for key, session in list(self.entries.items()):
            if session.expires_at < now:
                del self.entries[key]
''',
    "auth/password.py": "def hash_password(password, salt):\n    return digest(password + salt)\n",
    "http/router.py": "class Router:\n    def match(self, path):\n        return self.routes[path]\n",
    "http/response.py": "class Response:\n    status = 200\n    body = b''\n",
    "tests/test_session.py": "def test_expired_sessions_are_purged():\n    SessionStore().purge_expired(5)\n",
    "docs/sessions.md": "# Sessions\n\nSessions expire. Expired sessions are purged by the store.\n",
    "vendor/session.py": "def purge_expired_session(session): pass\n",
}


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    trees.git(root, "init", "-q", "-b", "main")
    _write(root, _FILES)
    trees.git(root, "add", "-A")
    trees.git(root, "commit", "-qm", "Begin")
    (root / "http/response.py").write_text(_FILES["http/response.py"] + "    headers = {}\n")
    trees.git(root, "commit", "-qam", "Send a teapot when the kettle is empty")
    return root


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    assert opened.terms.wait_built(120)
    yield opened
    opened.close()


def ask(workspace: Workspace, question: str, **more: object) -> ToolResult:
    result = workspace.call("search", {"query": question, "mode": "ranked", **more}, OneCall())
    assert not result.is_error, result.text
    return result


def places(result: ToolResult) -> list[str]:
    matches = result.structured["matches"]
    assert isinstance(matches, list)
    return [f"{match['path']}:{match['line']}" for match in matches]


def test_a_question_finds_the_function_before_tests_documents_and_vendored_files(workspace: Workspace) -> None:
    result = ask(workspace, "where are expired sessions deleted?")
    assert places(result)[0] == "auth/session.py:8"
    assert "del self.entries[key]" in result.text
    assert result.structured["complete"] is True


def test_a_name_finds_its_definition(workspace: Workspace) -> None:
    assert places(ask(workspace, "Router"))[0] == "http/router.py:1"
    assert places(ask(workspace, "SessionStore.purge_expired"))[0].startswith("auth/session.py")


def test_the_messages_of_commits_lead_to_the_files_they_changed(workspace: Workspace) -> None:
    assert places(ask(workspace, "teapot for an empty kettle"))[0].startswith("http/response.py")


def test_a_filter_holds(workspace: Workspace) -> None:
    assert {place.partition("/")[0] for place in places(ask(workspace, "expired sessions", globs="tests/**"))} == {
        "tests"
    }
    assert all(".md" not in place for place in places(ask(workspace, "expired sessions", languages=["python"])))


def test_the_budget_holds_and_the_first_place_is_always_given(workspace: Workspace) -> None:
    small, large = ask(workspace, "expired sessions", max_tokens=100), ask(workspace, "expired sessions")
    assert 1 <= len(places(small)) < len(places(large))
    assert places(large)[: len(places(small))] == places(small)


def test_edits_new_files_and_deletions_are_seen_by_the_next_question(workspace: Workspace, root: Path) -> None:
    (root / "http/router.py").write_text("class Zeppelin:\n    def hover(self):\n        return 'zeppelin'\n")
    assert places(ask(workspace, "zeppelin hover"))[0] == "http/router.py:2"
    (root / "http/balloon.py").write_text("def inflate_balloon():\n    pass\n")
    assert places(ask(workspace, "inflate the balloon"))[0] == "http/balloon.py:1"
    os.unlink(root / "http/balloon.py")
    assert not any("balloon" in place for place in places(ask(workspace, "inflate the balloon")))


def test_an_index_is_used_again_after_a_restart_and_a_damaged_one_rebuilt(root: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = open_workspace(root, data)
    assert first.terms.wait_built(120)
    expected = places(ask(first, "expired sessions"))
    first.close()
    (segment,) = data.glob("index/*/terms/*.terms")
    again = open_workspace(root, data)
    assert again.terms.wait_built(120)
    assert places(ask(again, "expired sessions")) == expected
    assert [path.name for path in data.glob("index/*/terms/*.terms")] == [segment.name]
    again.close()
    segment.write_bytes(b"not a segment")
    rebuilt = open_workspace(root, data)
    assert rebuilt.terms.wait_built(120)
    assert places(ask(rebuilt, "expired sessions")) == expected
    rebuilt.close()


def test_a_persisted_index_answers_at_once_when_a_workspace_is_opened_again(root: Path, tmp_path: Path) -> None:
    first = open_workspace(root, tmp_path / "data")
    assert first.terms.wait_built(120)
    expected = places(ask(first, "expired sessions"))
    first.close()
    again = open_workspace(root, tmp_path / "data")
    assert again.terms.usable
    # Until git's history is read again, later places may be in another order.
    assert places(ask(again, "expired sessions"))[0] == expected[0]
    again.close()


def test_a_file_deleted_while_closed_is_never_shown(root: Path, tmp_path: Path) -> None:
    first = open_workspace(root, tmp_path / "data")
    assert first.terms.wait_built(120)
    first.close()
    os.unlink(root / "auth/session.py")
    again = open_workspace(root, tmp_path / "data")
    found = places(ask(again, "where are expired sessions deleted?"))
    again.close()
    assert found
    assert not any(place.startswith("auth/session.py") for place in found)


def test_a_segment_damaged_in_use_is_dropped_and_the_question_answered(root: Path, tmp_path: Path) -> None:
    opened = open_workspace(root, tmp_path / "data")
    assert opened.terms.wait_built(120)
    (segment,) = (tmp_path / "data").glob("index/*/terms/*.terms")
    with open(segment, "r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (segment.stat().st_size - 8192))
    question = "where are expired sessions deleted?"
    wait_until(lambda: "auth/session.py:8" in places(ask(opened, question)), "the segment is built again")
    opened.close()


def test_the_first_question_of_a_new_workspace_is_answered_before_there_is_an_index(
    root: Path, tmp_path: Path
) -> None:
    opened = open_workspace(root, tmp_path / "data")
    result = ask(opened, "where are expired sessions deleted?")
    opened.close()
    assert "auth/session.py:8" in places(result)[:2]
    assert result.structured["complete"] is True or "being built" in str(result.structured["note"])


def test_hostile_questions_are_answered_or_refused(workspace: Workspace) -> None:
    for question in (
        "x" * 100_000,
        "\N{PILE OF POO} zażółć 세션 만료",
        "a" * 64 + "_b" * 3000,
        "(((",
        "--help expired",
    ):
        assert workspace.call("search", {"query": question, "mode": "ranked"}, OneCall()) is not None
    refused = workspace.call("search", {"query": " ?! ", "mode": "ranked"}, OneCall())
    assert refused.is_error


def test_nothing_that_the_repository_names_is_executed(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "gpg.program", "diff.external", "diff.evil.textconv", "pager.log"):
        trees.git(root, "config", name, str(script))
    trees.git(root, "config", "log.showSignature", "true")
    (root / ".git/info/attributes").write_text("* diff=evil\n")
    assert read_history(root).commits
    assert not mark.exists()


def test_a_folder_outside_git_has_no_history(tmp_path: Path) -> None:
    assert not read_history(tmp_path).commits


def test_segments_are_private(workspace: Workspace, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "data").glob("index/*/terms/*.terms")
    assert segment.stat().st_mode & 0o077 == 0
    with sqlite3.connect(f"{segment.as_uri()}?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
    db.close()
