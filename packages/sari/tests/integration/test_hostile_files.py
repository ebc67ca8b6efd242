"""A repository with pipes, links to devices and to other repositories, and a client that makes up cursors: each call ends
with an answer or a reason, and nothing outside the workspace is read or changed.
"""

import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.index import ignore, ripgrep_process
from sari.index.git import open_repository, read_head
from sari.index.ignore import Ignored
from sari.protocol.tooling import ToolResult
from sari.tools.paging import write_cursor
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import UncancelledCall, call_tool, refusal_of
from testing.sari.processes import wait_until
from testing.sari.trees import git

_DEADLINE_S = 240.0


def repository(where: Path) -> Path:
    where.mkdir()
    git(where, "init", "-q", "-b", "main")
    (where / "a.py").write_text("def one():\n    return 1\n")
    git(where, "add", "-A")
    git(where, "commit", "-qm", f"first of {where.name}")
    return where


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    assert opened.index.wait_settled(120)
    yield opened
    opened.close()


def answer_in_time(workspace: Workspace, tool: str, **arguments: object) -> ToolResult:
    """Call a tool in a thread that may be abandoned, because a hanging one could not be ended."""
    answers: list[ToolResult] = []
    thread = threading.Thread(
        target=lambda: answers.append(workspace.call(tool, arguments, UncancelledCall())), daemon=True
    )
    thread.start()
    thread.join(_DEADLINE_S)
    assert answers, f"{tool} hangs"
    return answers[0]


@pytest.mark.parametrize(
    "arguments", [{}, {"path": "a.py", "start": 1}, {"text": "one"}, {"query": "first"}], ids=lambda one: str(one)
)
def test_a_made_up_cursor_is_no_option_for_git(
    workspace: Workspace, tmp_path: Path, arguments: dict[str, object]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    names = ("query", "path", "symbol", "start", "end", "text", "regex")
    query = "history " + "\0".join(str(arguments.get(name, "")) for name in names)
    for head in (f"--output={precious}", "HEAD", "main", "", "../a.py"):
        refused = refusal_of(workspace, "history", **arguments, cursor=write_cursor(query, (0, head, 0)))
        assert "is not one that sari gave" in refused
    assert precious.read_text() == "do not touch"


@pytest.mark.parametrize("name", ["HEAD", "commondir", "shallow"])
def test_a_pipe_in_place_of_a_file_of_git_hangs_no_call(root: Path, tmp_path: Path, name: str) -> None:
    pipe = root / ".git" / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    opened = open_workspace(root, tmp_path / "data")
    assert opened.index.wait_settled(120)
    assert not answer_in_time(opened, "recent").is_error
    assert not answer_in_time(opened, "search", query="one").is_error
    opened.close()


def test_a_pipe_called_git_or_like_code_hangs_neither_the_index_nor_a_call(root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir()
    os.mkfifo(root / "sub/.git")
    os.mkfifo(root / "pipe.py")
    opened = open_workspace(root, tmp_path / "data")
    assert opened.index.wait_settled(_DEADLINE_S)
    (root / "later").mkdir()
    os.mkfifo(root / "later/.git")
    for tool, arguments in (("search", {"query": "one"}), ("repo_map", {}), ("recent", {})):
        assert "a.py" in answer_in_time(opened, tool, **arguments).text
    opened.close()


def test_an_ignore_file_that_is_a_pipe_or_a_device_has_no_rules(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".ignore").symlink_to("/dev/zero")
    (tmp_path / ".rgignore").write_text("out/\n")
    found: list[list[bool]] = []
    thread = threading.Thread(
        target=lambda: found.append([Ignored(tmp_path).folder(name) for name in ("src", "out")]), daemon=True
    )
    thread.start()
    thread.join(_DEADLINE_S)
    assert found == [[False, True]]


def test_a_linked_device_as_ignore_file_ends_ripgrep_and_each_call_says_so(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Less than the product's limit, because the tests share a machine.
    monkeypatch.setattr(ripgrep_process, "_MOST_DATA_BYTES", 256 << 20)
    (root / ".ignore").symlink_to("/dev/zero")
    for tool, arguments in (("search", {"query": "return"}), ("find_files", {"query": "a"}), ("repo_map", {})):
        assert "out of memory" in refusal_of(workspace, tool, **arguments)
    (root / ".ignore").unlink()
    (root / "b.py").write_text("def two():\n    return 2\n")
    assert call_tool(workspace, "search", query="return")["total"] == 2


def test_without_a_runnable_ripgrep_no_answer_is_empty_and_complete(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too many open files or processes."""
    program = ripgrep_process.PROGRAM
    monkeypatch.setattr(ripgrep_process, "PROGRAM", str(tmp_path / "missing"))
    opened = open_workspace(root, tmp_path / "data")
    try:
        for tool in ("symbols", "references", "find_files", "search"):
            arguments = {"name" if tool == "references" else "query": "one"}
            assert "ripgrep cannot be run" in refusal_of(opened, tool, **arguments), tool
        monkeypatch.setattr(ripgrep_process, "PROGRAM", program)
        assert opened.index.wait_settled(120)
        assert call_tool(opened, "symbols", query="one")["total"] == 1
        monkeypatch.setattr(ripgrep_process, "PROGRAM", str(tmp_path / "missing"))
        (root / "later").mkdir()
        (root / "later/b.py").write_text("def other():\n    return 1\n")
        assert "ripgrep cannot be run" in refusal_of(opened, "symbols", query="other")
        monkeypatch.setattr(ripgrep_process, "PROGRAM", program)
        wait_until(lambda: not opened.call("symbols", {"query": "other"}, UncancelledCall()).is_error, "it recovers")
        assert call_tool(opened, "symbols", query="other")["total"] == 1
        assert call_tool(opened, "symbols", query="one")["total"] == 1
    finally:
        opened.close()


def test_a_repository_does_not_show_anothers_history_through_links(root: Path, tmp_path: Path) -> None:
    private = repository(tmp_path / "private")
    objects = private / ".git/objects"
    (root / ".git/objects/info").mkdir(exist_ok=True)
    (root / ".git/objects/info/alternates").write_text(f"{objects}\n")
    (root / ".git/HEAD").unlink()
    (root / ".git/HEAD").symlink_to(private / ".git/refs/heads/main")
    assert read_head(root) is None
    with open_repository(root) as opened:
        assert opened is not None
        assert opened.head is None
    git(private, "pack-refs", "--all")
    (root / ".git/HEAD").unlink()
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git/refs/heads/main").unlink()
    (root / ".git/packed-refs").symlink_to(private / ".git/packed-refs")
    assert read_head(root) is None


def test_a_file_that_takes_a_parser_minutes_is_named_and_left_out(root: Path, tmp_path: Path) -> None:
    # 64 KB: about half a minute of a core, in which a parser lets no other thread of its process run.
    (root / "Slow.java").write_text("a<b<" * 16_000 + " one\n")
    (root / "Good.java").write_text("class Good { void one() { one(); } }\n")
    opened = open_workspace(root, tmp_path / "data")
    try:
        assert opened.index.wait_settled(120)
        outline = call_tool(opened, "outline", path="Slow.java")
        assert outline["complete"] is False
        assert "cannot be parsed" in outline["note"]
        references = call_tool(opened, "references", name="one")
        assert references["complete"] is False
        assert "Cannot be parsed: Slow.java" in references["note"]
        assert [row["path"] for row in references["references"]] == ["Good.java", "a.py"]
        assert "Slow.java" in refusal_of(opened, "rename_symbol", name="Good.one", new_name="two")
        assert [row["path"] for row in call_tool(opened, "symbols", query="one")["symbols"]] == ["Good.java", "a.py"]
    finally:
        opened.close()


def test_a_changed_file_that_takes_a_parser_minutes_keeps_no_other_client_waiting(tmp_path: Path) -> None:
    # Another workspace of the same process, as in the daemon. A parser in this process would stop all of its threads.
    slow, other = repository(tmp_path / "slow"), repository(tmp_path / "other")
    (slow / "Good.java").write_text("class Good { void handle() { handle(); } }\n")
    first, second = open_workspace(slow, tmp_path / "data"), open_workspace(other, tmp_path / "data")
    try:
        assert first.index.wait_settled(120)
        assert first.terms.wait_built(120)
        assert second.index.wait_settled(120)
        text = "a<b<a<b<\n" * 8_000 + " handle\n"
        began = resource.getrusage(resource.RUSAGE_SELF)
        (slow / "Slow.java").write_text(text)
        # A file that was harmless when it was parsed, and one that is looked into for a name.
        (slow / "Good.java").write_text("class Good { void handle() { handle(); } }\n" + text)
        answers = [
            answer_in_time(first, "search", query="where is handle", mode="ranked"),
            answer_in_time(first, "references", name="handle"),
        ]
        assert not any(answer.is_error for answer in answers)
        assert call_tool(second, "symbols", query="one")["total"] == 1
        used = resource.getrusage(resource.RUSAGE_SELF)
        assert used.ru_utime - began.ru_utime < 10, "the parser ran in this process"
    finally:
        first.close()
        second.close()


def test_a_replacement_that_takes_a_parser_minutes_is_refused(workspace: Workspace, root: Path) -> None:
    (root / "Good.java").write_text("class Good {\n  void one() {\n    one();\n  }\n}\n")
    refused = refusal_of(workspace, "replace_symbol", path="Good.java", symbol="Good", text="a<b<" * 16_000)
    assert "takes too long to parse" in refused
    assert "class Good" in (root / "Good.java").read_text()


def test_a_file_of_a_million_definitions_or_of_one_endless_name_is_named_and_left_out(
    workspace: Workspace, root: Path
) -> None:
    (root / "many.py").write_text("a=1\n" * 1_000_000)
    (root / "long.py").write_text(f"def {'n' * 1_000_000}(): pass\n")
    for path in ("many.py", "long.py"):
        outline = call_tool(workspace, "outline", path=path)
        assert (outline["symbols"], outline["complete"]) == ([], False)
    assert call_tool(workspace, "outline", path="a.py")["complete"] is True


@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_a_configuration_of_git_that_is_no_small_file_has_no_settings(root: Path, kind: str) -> None:
    config = root / ".git/config"
    config.unlink()
    if kind == "pipe":
        os.mkfifo(config)
    elif kind == "device":
        config.symlink_to("/dev/zero")
    else:
        config.write_text("[core]\n\tautocrlf = true\n" + "# filler\n" * 1_000_000)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open_repository(root) as opened:
        assert opened is not None
        assert opened._settings == ()
        assert opened.run("log", "--format=%s", str(opened.head)).strip() == "first of repo"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime - began.ru_utime < 5


def test_ignore_files_with_too_many_rules_ignore_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("out/\n")
    assert Ignored(tmp_path).folder("out")
    # The last rule includes the folder again, as ripgrep sees it.
    (tmp_path / ".ignore").write_text("# filler\n" * 200_000 + "!out/\n")
    assert not Ignored(tmp_path).folder("out")
    (tmp_path / ".ignore").unlink()
    monkeypatch.setattr(ignore, "_MOST_RULES", 100)
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}/.gitignore").write_text("".join(f"/r{at}/\n" for at in range(40)) + "/out/\n")
    rules = Ignored(tmp_path)
    assert [rules.folder(f"d{number}/out") for number in range(5)] == [True, True, False, False, False]
    kept = [len(one or ()) for one in rules._git_rules.values()]
    assert sum(kept) <= 100
