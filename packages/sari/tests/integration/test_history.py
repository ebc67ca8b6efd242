"""The `history` tool: commits by lines, symbol, text, path and message, in a repository that tries to run programs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.tools import history
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import UncancelledCall, call_tool, refusal_of
from testing.sari.processes import wait_until
from testing.sari.trees import git

_FIRST = "def expire(session):\n    return session.age > 60\n\n\ndef close(session):\n    session.open = False\n"


def _commit(root: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    _commit(root, "Add sessions", session__py=_FIRST)
    _commit(
        root, "Expire sessions after two minutes\n\nUsers lost their work.", session__py=_FIRST.replace("60", "120")
    )
    _commit(root, "Fix the serialization of empty carts", cart__py="def total(cart):\n    return sum(cart or ())\n")
    _commit(
        root,
        "Close sessions in the store",
        session__py=_FIRST.replace("60", "120").replace("session.open = False", "session.store.close()"),
    )
    return root


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    yield opened
    opened.close()


def _subjects(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row["message"].partition("\n")[0] for row in answer["commits"]]


def test_the_commits_that_touched_lines_are_found(workspace: Workspace) -> None:
    answer = call_tool(workspace, "history", path="session.py", start=1, end=2)
    assert _subjects(answer) == ["Expire sessions after two minutes", "Add sessions"]
    assert "Users lost their work." in answer["commits"][0]["message"]
    assert answer["complete"]


def test_lines_are_those_of_the_file_as_it_is_on_disk(workspace: Workspace, root: Path) -> None:
    text = (root / "session.py").read_text()
    (root / "session.py").write_text("import time\nimport os\n\n\n" + text)
    answer = call_tool(workspace, "history", path="session.py", start=9, end=10)
    assert _subjects(answer) == ["Close sessions in the store", "Add sessions"]
    answer = workspace.call("history", {"path": "session.py", "start": 1, "end": 2}, UncancelledCall())
    assert answer.structured["commits"] == []
    assert "not committed yet" in answer.text


def test_lines_are_followed_through_a_rename(workspace: Workspace, root: Path) -> None:
    git(root, "mv", "session.py", "sessions.py")
    git(root, "commit", "-qm", "Move sessions")
    answer = call_tool(workspace, "history", path="sessions.py", start=1, end=2)
    assert "Add sessions" in _subjects(answer)


def test_the_commits_that_touched_a_symbol_are_found(workspace: Workspace) -> None:
    answer = call_tool(workspace, "history", symbol="close")
    assert _subjects(answer) == ["Close sessions in the store", "Add sessions"]
    assert call_tool(workspace, "history", symbol="close", path="session.py")["commits"] == answer["commits"]


def test_a_symbol_that_is_gone_is_followed_by_its_name(workspace: Workspace, root: Path) -> None:
    _commit(root, "Remove carts", cart__py="# nothing\n")
    answer = call_tool(workspace, "history", symbol="total")
    assert _subjects(answer) == ["Remove carts", "Fix the serialization of empty carts"]
    assert "total" in answer["note"]


def test_the_commits_that_added_or_removed_a_text_are_found(workspace: Workspace) -> None:
    assert _subjects(call_tool(workspace, "history", text="session.open")) == [
        "Close sessions in the store",
        "Add sessions",
    ]
    assert _subjects(call_tool(workspace, "history", text=r"age > 1\d0", regex=True)) == [
        "Expire sessions after two minutes"
    ]
    assert call_tool(workspace, "history", text="session.open", path="cart.py")["commits"] == []


def test_messages_answer_whether_something_was_fixed_before(workspace: Workspace, root: Path) -> None:
    answer = call_tool(workspace, "history", query="was the cart serializer fixed before?")
    assert _subjects(answer)[0] == "Fix the serialization of empty carts"
    assert answer["commits"][0]["paths"] == ["cart.py"]
    assert _subjects(call_tool(workspace, "history", query="sessions expire", path="cart.py")) == []
    _commit(root, "Serialize carts as JSON", cart__py="import json\n")
    assert _subjects(call_tool(workspace, "history", query="cart json"))[0] == "Serialize carts as JSON"


def test_messages_of_another_branch_are_not_found(workspace: Workspace, root: Path) -> None:
    git(root, "checkout", "-qb", "topic")
    _commit(root, "Paint the bikeshed", shed__py="colour = 1\n")
    assert _subjects(call_tool(workspace, "history", query="bikeshed")) == ["Paint the bikeshed"]
    git(root, "checkout", "-q", "main")
    assert call_tool(workspace, "history", query="bikeshed")["commits"] == []


def test_a_damaged_message_index_is_built_again(root: Path, tmp_path: Path) -> None:
    first = open_workspace(root, tmp_path / "data")
    assert call_tool(first, "history", query="carts")["commits"]
    first.close()
    (store,) = (tmp_path / "data").rglob("commits.db")
    store.write_bytes(b"not a database" * 1000)
    second = open_workspace(root, tmp_path / "data")
    try:
        assert _subjects(call_tool(second, "history", query="carts")) == ["Fix the serialization of empty carts"]
    finally:
        second.close()


@pytest.mark.parametrize(
    "arguments", [{}, {"query": "sessions carts close"}, {"text": "session"}, {"path": "session.py"}]
)
def test_all_pages_together_are_the_whole_answer(workspace: Workspace, root: Path, arguments: dict[str, str]) -> None:
    whole = _subjects(call_tool(workspace, "history", **arguments))
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = call_tool(workspace, "history", **arguments, max_tokens=100, **cursor)
        found += _subjects(page)
        if page["cursor"] is None:
            break
        assert page["commits"]
        cursor = {"cursor": page["cursor"]}
        # A commit in between neither repeats nor hides any.
        _commit(root, f"Sessions and carts, number {len(found)}", **{f"new{len(found)}__py": "session\n"})
    assert found == whole


def test_a_long_walk_stops_and_goes_on_from_its_cursor(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_TIME_S", 0.0)
    monkeypatch.setattr(history, "_FIRST_BATCH", 1)
    page = call_tool(workspace, "history", text="total")
    assert page["commits"] == []
    assert not page["complete"]
    assert "looked at" in page["note"]
    page = call_tool(workspace, "history", text="total", cursor=page["cursor"])
    assert _subjects(page) == ["Fix the serialization of empty carts"]


def test_a_workspace_below_the_top_sees_its_own_history(root: Path, tmp_path: Path) -> None:
    (root / "deep").mkdir()
    _commit(root, "Go deep", **{"deep/a__py": "def deep():\n    return 1\n"})
    opened = open_workspace(root / "deep", tmp_path / "data")
    try:
        for arguments in ({}, {"query": "deep sessions"}, {"path": "a.py"}, {"symbol": "deep"}, {"text": "return"}):
            assert _subjects(call_tool(opened, "history", **arguments)) == ["Go deep"], arguments
        assert call_tool(opened, "history")["commits"][0]["paths"] == ["a.py"]
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"start": 3}, "path"),
        ({"path": "session.py", "start": 5, "end": 2}, "before"),
        ({"path": "session.py", "start": 500}, "no lines"),
        ({"path": "nowhere.py", "start": 1}, "not in the last commit"),
        ({"query": "a", "text": "b"}, "one of"),
        ({"path": "../outside"}, "outside"),
        ({"text": "x" * 3000}, "at most"),
        ({"text": "(", "regex": True}, "regular expression"),
    ],
)
def test_a_wrong_call_is_explained(workspace: Workspace, arguments: dict[str, object], says: str) -> None:
    assert says in refusal_of(workspace, "history", **arguments)


def test_a_shallow_clone_says_that_older_commits_are_missing(root: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", root.as_uri(), str(clone))
    opened = open_workspace(clone, tmp_path / "data")
    try:
        for arguments in ({}, {"query": "sessions"}, {"text": "120"}, {"symbol": "close"}, {"path": "cart.py"}):
            answer = call_tool(opened, "history", **arguments)
            assert not answer["complete"], arguments
            assert "shallow clone" in answer["note"]
    finally:
        opened.close()


def test_a_folder_without_git_has_no_history(tmp_path: Path) -> None:
    opened = open_workspace(tmp_path, tmp_path / "data")
    try:
        assert "not in a git repository" in refusal_of(opened, "history")
    finally:
        opened.close()


def test_options_in_arguments_stay_text(workspace: Workspace, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for text in (f"--output={mark}", f"x --output={mark}", "-p", ":(exclude)session.py"):
        call_tool(workspace, "history", text=text)
        call_tool(workspace, "history", path=text)
        call_tool(workspace, "history", query=text)
    assert not mark.exists()


def test_control_characters_in_a_message_forge_no_commit(workspace: Workspace, root: Path) -> None:
    _commit(root, "Odd \x01\x02 message\n\n\x01deadbeef\x02", odd__py="x = 1\n")
    answer = call_tool(workspace, "history", path="odd.py")
    assert len(answer["commits"]) == 1
    assert answer["commits"][0]["message"].startswith("Odd")


@pytest.mark.parametrize("how", ["file", "link", "commondir", "ref"])
def test_another_repository_is_not_opened_through_this_one(root: Path, tmp_path: Path, how: str) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    if how == "file":
        (hostile / ".git").write_text(f"gitdir: {root}/.git\n")
    elif how == "link":
        (hostile / ".git").symlink_to(root / ".git")
    else:
        git(hostile, "init", "-q", "-b", "main")
        if how == "commondir":
            (hostile / ".git/commondir").write_text(f"{root}/.git\n")
        else:
            (hostile / ".git/refs/heads/main").symlink_to(root / ".git/refs/heads/main")
            (hostile / ".git/objects/info/alternates").write_text(f"{root}/.git/objects\n")
    opened = open_workspace(hostile, tmp_path / "data")
    try:
        assert "Add sessions" not in refusal_of(opened, "history")
    finally:
        opened.close()


def test_a_cancelled_call_ends_its_git(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    class Cancelled(UncancelledCall):
        @property
        def cancelled(self) -> bool:  # type: ignore[override]
            return bool(started)

    def remember(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = begin(*arguments, **options)  # type: ignore[call-overload]
        if "log" in process.args or "rev-list" in process.args:  # type: ignore[operator]
            started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", remember)
    result = workspace.call("history", {"text": "session"}, Cancelled())
    assert result.is_error
    assert "cancelled" in result.text
    wait_until(lambda: all(process.poll() is not None for process in started), "git has ended")
    assert not os.path.exists(f"/proc/{started[0].pid}/cmdline") or started[0].poll() is not None
