"""A repository that names programs to run, and names that are slow to match: no tool call runs or hangs on them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.index.git import open_repository
from sari.protocol.catalog import TOOLS
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import UncancelledCall, call_tool
from testing.sari.trees import git

CODE = """class Base:
    def work(self):
        return helper()


class Derived(Base):
    def work(self):
        return helper()


def helper():
    return 1
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository in which every setting that can name a program names one that leaves a mark."""
    root, mark = tmp_path / "repo", tmp_path / "mark"
    root.mkdir()
    inner = tmp_path / "inner"
    inner.mkdir()
    for repository in (inner, root):
        git(repository, "init", "-q", "-b", "main")
        (repository / "a.txt").write_text("one\n")
        (repository / "code.py").write_text(CODE)
        (repository / ".gitattributes").write_text("*.txt filter=evil diff=evil\n*.py filter=evil diff=evil\n")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "first")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    git(root, "commit", "-qm", "with a submodule")
    program = tmp_path / "evil.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {mark}\ncat\n')
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout"):
        (hooks / hook).symlink_to(program)
    settings = (
        f"[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n\tsshCommand = {program}\n\tpager = {program}\n"
        f"\teditor = {program}\n\taskPass = {program}\n\tgitProxy = {program}\n\talternateRefsCommand = {program}\n"
        f'[filter "evil"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n'
        f'[diff]\n\texternal = {program}\n[diff "evil"]\n\ttextconv = {program}\n\tcommand = {program}\n'
        f'[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {program}\n[gpg "ssh"]\n\tprogram = {program}\n'
        f"[alias]\n\tstatus = !{program}\n\tlog = !{program}\n[pager]\n\tstatus = {program}\n\tlog = {program}\n"
        f"[credential]\n\thelper = !{program}\n[protocol]\n\tallow = always\n[uploadpack]\n\tpackObjectsHook = {program}\n"
        f'[remote "origin"]\n\turl = ext::{program}\n\tuploadpack = {program}\n\tpromisor = true\n'
        f'[merge "evil"]\n\tdriver = {program}\n[extensions]\n\tpartialClone = origin\n'
    )
    (tmp_path / "included").write_text(settings)
    for config in (root / ".git/config", root / ".git/modules/sub/config"):
        with open(config, "a") as file:
            file.write(f"{settings}[include]\n\tpath = {tmp_path}/included\n")
    # Content that differs although the times do not: only a filter could tell.
    (root / "a.txt").write_text("two\n")
    (root / "sub/a.txt").write_text("two\n")
    (root / "new.txt").write_text("new\n")
    assert not mark.exists()
    return root


@pytest.fixture
def workspace(hostile: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(hostile, tmp_path / "data")
    assert opened.index.wait_settled(120)
    yield opened
    opened.close()


def test_the_hostile_repository_is_hostile(hostile: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "status"], cwd=hostile, capture_output=True, check=False)
    assert (tmp_path / "mark").exists()


def test_no_tool_runs_what_a_repository_names(workspace: Workspace, hostile: Path, tmp_path: Path) -> None:
    files = call_tool(workspace, "recent")["files"]
    by_path = {row["path"]: row["source"] for row in files}
    assert by_path["a.txt"] == by_path["new.txt"] == "uncommitted"
    assert by_path[".gitattributes"] == "commit"
    calls: tuple[tuple[str, dict[str, object]], ...] = (
        ("search", {"query": "two"}),
        ("find_files", {"query": "a"}),
        ("symbols", {"query": "helper"}),
        ("outline", {"path": "code.py"}),
        ("references", {"name": "helper"}),
        ("callers", {"name": "helper"}),
        ("implementations", {"name": "Base"}),
        ("read", {"path": "a.txt"}),
        ("history", {}),
        ("history", {"query": "submodule"}),
        ("history", {"path": "a.txt", "start": 1}),
        ("history", {"text": "one"}),
        ("history", {"text": "o.e", "regex": True}),
        ("repo_map", {}),
        ("status", {}),
        ("rescan", {}),
        ("doctor", {}),
        ("rename_symbol", {"name": "helper", "new_name": "renamed", "path": "code.py"}),
        ("replace_symbol", {"path": "code.py", "symbol": "renamed", "text": "def renamed():\n    return 2\n"}),
    )
    assert {spec.name for spec in TOOLS} <= {"recent", *(tool for tool, _ in calls)}
    for tool, arguments in calls:
        answer = call_tool(workspace, tool, **arguments)
        if "preview" in answer:  # and it is written
            assert call_tool(workspace, tool, **arguments, apply=answer["preview"])["applied"]
    assert "return 2" in (hostile / "code.py").read_text()
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def test_a_worktree_and_packed_refs_are_read_too(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    (main / "deep").mkdir()
    (main / "deep/a.py").write_text("a = 1\n")
    git(main, "add", "-A")
    git(main, "commit", "-qm", "first")
    git(main, "worktree", "add", "-q", "-b", "topic", str(linked))
    git(main, "pack-refs", "--all")
    (linked / "deep/a.py").write_text("a = 2\n")
    with open_repository(linked / "deep") as repository:
        assert repository is not None
        assert repository.prefix == "deep/"
        assert " M deep/a.py" in repository.run("status", "--porcelain")
        assert repository.run("log", "--format=%s", str(repository.head)).strip() == "first"


def test_a_folder_in_no_repository_has_none(tmp_path: Path) -> None:
    with open_repository(tmp_path) as repository:
        assert repository is None


def test_one_long_file_name_costs_find_files_no_time(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    # Every letter of the query but the last, over and over: backtracking would not end.
    (root / ("package.jso" * 22)).write_text("x\n")
    (root / "package.json").write_text("{}\n")
    opened = open_workspace(root, tmp_path / "data")
    try:
        assert opened.index.wait_settled(120)
        assert [row["path"] for row in call_tool(opened, "find_files", query="package.json")["files"]] == [
            "package.json"
        ]
    finally:
        opened.close()


def test_a_cancelled_find_files_ends(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").write_text("x\n")
    opened = open_workspace(tmp_path / "tree", tmp_path / "data")

    class Cancelled(UncancelledCall):
        cancelled = True

    try:
        for tool in ("find_files", "recent"):
            result = opened.call(tool, {"query": "a"} if tool == "find_files" else {}, Cancelled())
            assert result.is_error
            assert "cancelled" in result.text
    finally:
        opened.close()


@pytest.mark.parametrize("entries", [".:", "{root}/bin:", "bin:", ":{link}:"])
def test_git_and_the_language_servers_are_never_programs_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str
) -> None:
    root, mark = tmp_path / "repo", tmp_path / "mark"
    (root / "bin").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "code.py").write_text(CODE)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    for folder in (root, root / "bin"):
        for name in ("git", "rg", "pyright-langserver"):
            (folder / name).write_text(f"#!/bin/sh\necho $0 >> {mark}\nexit 1\n")
            (folder / name).chmod(0o755)
    (tmp_path / "link").symlink_to(root / "bin")
    before = entries.format(root=root, link=tmp_path / "link")
    monkeypatch.setenv("PATH", before + os.environ["PATH"])
    workspace = open_workspace(root, tmp_path / "data")
    try:
        assert workspace.index.wait_settled(120)
        assert len(call_tool(workspace, "history")["commits"]) == 1
        for tool, arguments in (("recent", {}), ("references", {"name": "helper"}), ("doctor", {})):
            assert not workspace.call(tool, arguments, UncancelledCall()).is_error
    finally:
        workspace.close()
    assert not mark.exists(), mark.read_text()
