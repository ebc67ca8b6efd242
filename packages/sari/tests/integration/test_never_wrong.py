"""Answers that were wrong while they said `complete: true`: each of these was reported, and failed before its fix."""

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sari.index import ripgrep, ripgrep_process, search
from sari.index.search import Query
from sari.index.store import folder_of
from sari.index.workspace_index import WorkspaceIndex
from sari.languages import symbol_index
from sari.languages.parse import MAX_PARSED_BYTES
from sari.languages.read import Parsed, symbols_of
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import call_tool, refusal_of
from testing.sari.oracle import by_index, by_ripgrep
from testing.sari.processes import wait_until
from testing.sari.trees import git

Opener = Callable[[Path], Workspace]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    all_opened: list[Workspace] = []

    def open_one(root: Path) -> Workspace:
        all_opened.append(open_workspace(root, tmp_path / "data"))
        return all_opened[-1]

    yield open_one
    for workspace in all_opened:
        workspace.close()


@pytest.fixture
def scanning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Listings that do not end. Returns the file that contains the process id of the last one."""
    program, listing = tmp_path / "slow-rg", tmp_path / "listing.pid"
    program.write_text(
        f"""#!/bin/sh
case "$*" in *"--files --null ./") echo $$ > {listing}; exec sleep 3600;; esac
exec {ripgrep.PROGRAM} "$@"
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep_process, "PROGRAM", str(program))
    return listing


def _tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", ".").replace("_S_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.usefixtures("scanning")
def test_symbols_are_found_while_the_workspace_is_scanned(tmp_path: Path, opened: Opener) -> None:
    root = _tree(tmp_path / "tree", src_S_a__py="class Session:\n    def expire(self): pass\n", b__py="x = 1\n")
    workspace = opened(root)
    answer = call_tool(workspace, "symbols", query="Session")
    assert [(row["path"], row["line"]) for row in answer["symbols"]] == [("src/a.py", 1)]
    assert answer["complete"]
    assert call_tool(workspace, "symbols", query="Session.expire")["total"] == 1
    assert call_tool(workspace, "implementations", name="expire")["total"] == 1
    assert call_tool(workspace, "status")["state"] == "scanning"


def test_symbols_of_a_tree_that_is_listed_but_not_indexed_are_looked_for_where_their_name_is(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkspaceIndex, "_flush_or_wait", lambda self: None)
    parsed: list[bytes] = []

    def recorded(root: bytes, path: bytes, limit: int) -> Parsed | None:
        parsed.append(path)
        return symbols_of(root, path, limit)

    monkeypatch.setattr(symbol_index, "symbols_of", recorded)
    others = {f"src_S_f{number}__py": "def other(): pass\n" for number in range(50)}
    workspace = opened(_tree(tmp_path / "tree", zz__py="def Wanted(): pass\n", **others))
    assert workspace.index.wait_listed(60)
    assert call_tool(workspace, "symbols", query="zz.wanted")["total"] == 1
    assert set(parsed) == {b"zz.py"}
    assert call_tool(workspace, "symbols", query="wan\0ted")["total"] == 0


def test_the_file_that_defines_a_name_is_parsed_before_those_that_mention_it(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkspaceIndex, "_flush_or_wait", lambda self: None)
    # There is time for one file.
    monkeypatch.setattr(symbol_index, "_TIMEOUT_S", 0.0)
    parsed: list[bytes] = []

    def recorded(root: bytes, path: bytes, limit: int) -> Parsed | None:
        parsed.append(path)
        return symbols_of(root, path, limit)

    monkeypatch.setattr(symbol_index, "symbols_of", recorded)
    monkeypatch.setattr(symbol_index, "time", SimpleNamespace(monotonic=lambda: float(len(parsed))))
    others = {f"src_S_f{number}__rs": "fn f(checker: &Checker) { checker.run(); }\n" for number in range(20)}
    workspace = opened(_tree(tmp_path / "tree", zz_S_mod__rs="pub struct Checker<'a> {}\n", **others))
    assert workspace.index.wait_listed(60)
    answer = call_tool(workspace, "symbols", query="checkers::ast::Checker")
    assert parsed[0] == b"zz/mod.rs"
    assert answer["symbols"][0]["path"] == "zz/mod.rs"
    assert answer["complete"] is False


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "\ud800"}),
        ("search", {"query": "x", "globs": ["\ud800"]}),
        ("search", {"query": "\ud800", "mode": "ranked"}),
        ("symbols", {"query": "\ud800"}),
        ("find_files", {"query": "\ud800"}),
        ("read", {"path": "\ud800"}),
        ("history", {"query": "\ud800"}),
    ],
)
def test_half_a_character_is_refused_by_every_tool(
    tmp_path: Path, opened: Opener, tool: str, arguments: dict[str, object]
) -> None:
    workspace = opened(_tree(tmp_path / "tree", a__py="x = 1\n"))
    assert "surrogate" in refusal_of(workspace, tool, **arguments)


@pytest.mark.usefixtures("scanning")
def test_a_bare_folder_selects_what_is_below_it_while_scanning(tmp_path: Path, opened: Opener) -> None:
    root = _tree(tmp_path / "tree", django_S_forms_S_a__py="needle\n", other_S_b__py="needle\n")
    workspace = opened(root)
    for glob in ("django/forms", "forms", "django/forms/", "./django", "django/forms/**"):
        assert call_tool(workspace, "search", query="needle", globs=glob)["total"] == 1, glob


def test_closing_a_workspace_ends_its_listing(tmp_path: Path, opened: Opener, scanning: Path) -> None:
    workspace = opened(_tree(tmp_path / "tree", a__py="x = 1\n"))
    wait_until(lambda: scanning.exists() and scanning.read_text().endswith("\n"), "the tree is being listed")
    workspace.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(scanning.read_text()), 0)


@pytest.mark.parametrize("nested", ["repository", "submodule"])
def test_a_nested_repository_is_watched_whatever_the_outer_one_ignores(
    tmp_path: Path, opened: Opener, nested: str
) -> None:
    root, inner = tmp_path / "outer", tmp_path / "outer/lib"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("build/\n")
    if nested == "repository":
        inner.mkdir()
        git(inner, "init", "-q", "-b", "main")
    else:
        library = tmp_path / "library"
        library.mkdir()
        git(library, "init", "-q", "-b", "main")
        (library / "readme").write_text("x\n")
        git(library, "add", "-A")
        git(library, "commit", "-qm", "first")
        git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    (inner / "build").mkdir()
    (inner / "build/make.py").write_text("before\n")
    (root / "build").mkdir()
    (root / "build/out.py").write_text("before\n")
    workspace = opened(root)
    assert workspace.index.wait_settled(120)
    wait_until(lambda: "inotify" in str(workspace.status()["watching"]), "the tree is watched")
    (inner / "build/make.py").write_text("after the edit\n")
    (root / "build/out.py").write_text("after the edit\n")
    found = call_tool(workspace, "search", query="after the edit")
    assert [row["path"] for row in found["matches"]] == ["lib/build/make.py"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("gin.New", "gin.go"),
        ("gin.Context", "context.go"),
        ("django.db.models.QuerySet", "django/db/models/query.py"),
        ("hashers.check_password", "django/contrib/auth/hashers.py"),
        ("ruff_linter::checkers::ast::Checker", "crates/ruff-linter/src/checkers/ast/mod.rs"),
        ("Context.Next", "context.go"),
        ("models.QuerySet.all", "django/db/models/query.py"),
        ("an.alias.sari.cannot.follow.QuerySet", "django/db/models/query.py"),
    ],
)
def test_qualified_names_are_found(tmp_path: Path, opened: Opener, query: str, path: str) -> None:
    root = _tree(
        tmp_path / "gin",
        gin__go="package gin\n\nfunc New() *Engine { return nil }\n\nfunc NewEngine() {}\n",
        context__go="package gin\n\ntype Context struct{}\n\ntype ContextKey int\n\nfunc (c *Context) Next() {}\n",
        other_S_new__go="package other\n\nfunc New() {}\n",
        django_S_db_S_models_S_query__py="class QuerySet:\n    def all(self): pass\n",
        django_S_contrib_S_auth_S_hashers__py="def check_password(): pass\n",
        django_S_contrib_S_auth_S_backends__py="class Backend:\n    def check_password(self): pass\n",
    )
    checker = root / "crates/ruff-linter/src/checkers/ast/mod.rs"
    checker.parent.mkdir(parents=True)
    checker.write_text("pub struct Checker {}\n")
    workspace = opened(root)
    answer = call_tool(workspace, "symbols", query=query)
    assert answer["symbols"][0]["path"] == path
    assert ("note" in answer) == ("alias" in query)
    assert {row["name"] for row in answer["symbols"]} == {re.split(r"[.:]", query)[-1]}, (
        "no name that only contains it"
    )


def test_a_part_of_a_qualified_name_finds_what_begins_with_it(tmp_path: Path, opened: Opener) -> None:
    workspace = opened(_tree(tmp_path / "tree", a__py="class Store:\n    def close_all(self): pass\n"))
    assert [row["name"] for row in call_tool(workspace, "symbols", query="Store.clo")["symbols"]] == ["close_all"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("echo.Context", "context.go"),
        ("(*Context).Next", "context.go"),
        ("Polly.Retry.Options", "src/Polly.Core/Retry/Options.cs"),
        ("Polly.Pipeline", "src/Polly.Core/Pipeline.cs"),
        ("Guzzle\\Client", "src/Client.php"),
        ("\\Guzzle\\Client::request", "src/Client.php"),
        ("crate::async_impl::client::Builder", "src/async_impl/client.rs"),
        ("<Builder as Clone>::clone", "src/async_impl/client.rs"),
        ("Runner.prototype.run", "lib/runner.js"),
        ("okio.Buffer", "src/commonMain/Buffer.kt"),
        ("com.example.Store.Entry", "src/Store.java"),
    ],
)
def test_names_are_found_by_the_namespace_that_a_file_declares(
    tmp_path: Path, opened: Opener, query: str, path: str
) -> None:
    root = tmp_path / "checkout"
    for name, text in {
        "context.go": "package echo\n\ntype Context struct{}\n\nfunc (c *Context) Next() {}\n",
        "other.go": "package other\n\ntype Echo struct { context int }\n\nfunc (e *Echo) Next() {}\n",
        "src/Polly.Core/Retry/Options.cs": "namespace Polly.Retry;\n\npublic class Options { }\n",
        "src/Polly.Core/Pipeline.cs": "// A licence.\nnamespace Polly\n{\n  public class Pipeline { }\n}\n",
        "src/Polly/PipelineExtensions.cs": "namespace Polly;\n\npublic class PipelineExtensions { }\n",
        "src/Client.php": "<?php\n\nnamespace Guzzle;\n\nclass Client { function request() {} }\n",
        "tests/Client.php": "<?php\n\nnamespace Tests;\n\nclass Client { function request() {} }\n",
        "src/async_impl/client.rs": "pub struct Builder {}\n\nimpl Clone for Builder { fn clone(&self) {} }\n",
        "lib/runner.js": "function Runner() {}\nRunner.prototype.run = function () {};\n",
        "browser.js": "function run() {}\n",
        "src/commonMain/Buffer.kt": "package okio\n\nclass Buffer\n",
        "src/Store.java": "package com.example;\n\nclass Store { static class Entry { } }\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    answer = call_tool(opened(root), "symbols", query=query)
    assert answer["symbols"][0]["path"] == path
    assert "note" not in answer


@pytest.mark.parametrize("pattern", [r"\Aimport", "$", r"x*$", r"^", r"\z", r"b\\n", r"(?s)os.x"])
def test_patterns_that_match_nothing_at_the_end_are_ripgreps(tmp_path: Path, opened: Opener, pattern: str) -> None:
    root = _tree(tmp_path / "tree", a__py="import os\nx = 1\nimport b", b__py="12:13:no column\n", c__py="b\\n\n")
    index = opened(root).index
    assert index.wait_settled(120)
    query = Query(pattern, "regex")
    assert by_index(index, query) == by_ripgrep(root, query)


def test_an_escaped_backslash_does_not_search_across_lines() -> None:
    across = [r"a\nb", r"a\\\nb", "a\nb", r"\x0A", r"\x{a}", r"\u{0A}", r"(?s)a.b", r"(?is:a)", r"\\(?s)a"]
    within = [r"a\\nb", r"\x0b", r"(?i)a", r"\(?s", r"\\x0a", r"\S+s", r"(?P<s>b)"]
    assert all(Query(pattern, "regex").multiline for pattern in across)
    assert not any(Query(pattern, "regex").multiline for pattern in within)


def test_a_file_that_became_binary_is_no_path(tmp_path: Path, opened: Opener) -> None:
    root = _tree(tmp_path / "tree", a__txt="needle\n", b__txt="needle\n")
    index = opened(root).index
    assert index.wait_settled(120)
    where, _ = index.candidates(Query("needle").trigrams())
    assert where is not None
    (root / "a.txt").write_bytes(b"needle\n\0\nneedle\n")
    found = search.Found(Query("needle"))
    search._together(index, found, where.plain, lambda: False, bounded=True)
    assert {os.fsdecode(path) for path in found.counts} == {"b.txt"}
    lines = list(ripgrep.lines(ripgrep.stream(["needle", *ripgrep.LINES, "--", "./a.txt", "./b.txt"], root)))
    assert [line.path for line in lines] == [b"./b.txt"]


@pytest.mark.parametrize("glob", ["{a,b", "src/[a", "a}"])
def test_a_broken_glob_is_refused(tmp_path: Path, opened: Opener, glob: str) -> None:
    workspace = opened(_tree(tmp_path / "tree", a__txt="needle\n"))
    assert "glob" in refusal_of(workspace, "search", query="needle", globs=glob)
    assert "glob" in refusal_of(workspace, "find_files", query="a", globs=[glob])


@pytest.mark.parametrize("moved", ["root", "parent"])
def test_a_root_that_was_replaced_is_watched_again(tmp_path: Path, opened: Opener, moved: str) -> None:
    parent = tmp_path / "parent"
    root = _tree(parent / "tree", a__txt="needle\n")
    workspace = opened(root)
    assert workspace.index.wait_settled(120)
    place = root if moved == "root" else parent
    place.rename(tmp_path / "away")
    _tree(root, b__txt="needle in the new tree\n")
    for number in range(3):
        (root / "b.txt").write_text(f"edit number {number}\n")
        found = call_tool(workspace, "search", query=f"edit number {number}")
        assert [row["path"] for row in found["matches"]] == ["b.txt"]
        assert call_tool(workspace, "search", query="needle")["total"] == 0
        # Once the new tree is watched, edits are seen by that.
        wait_until(lambda: "inotify" in str(workspace.status()["watching"]), "the new tree is watched")


def test_a_file_that_cannot_be_parsed_is_named_in_the_answers_that_it_concerns(
    tmp_path: Path, opened: Opener
) -> None:
    """Once the background had passed it, it counted as a file without definitions."""
    large = "def in_large(Base): pass\n" + "x = 1\n" * (MAX_PARSED_BYTES // 6)
    root = _tree(tmp_path / "tree", large__py=large, small__py="def in_small(): pass\n")
    workspace = opened(root)
    for _ in range(2):
        outline = call_tool(workspace, "outline", path="large.py")
        assert (outline["symbols"], outline["complete"]) == ([], False)
        assert "cannot be parsed" in outline["note"]
        for tool, asked in (("symbols", {"query": "in_large"}), ("implementations", {"name": "Base"})):
            answer = call_tool(workspace, tool, **asked)
            assert (answer["total"], answer["complete"]) == (0, False), tool
            assert "large.py" in answer["note"]
        assert call_tool(workspace, "symbols", query="in_small")["complete"]
        # Again, when it is in the index of symbols.
        assert workspace.terms.wait_built(60)
    (root / "large.py").write_text("def in_large(): pass\n")
    answer = call_tool(workspace, "symbols", query="in_large")
    assert (answer["total"], answer["complete"]) == (1, True)


def test_a_look_at_a_file_outside_the_index_adds_nothing_to_other_answers(tmp_path: Path, opened: Opener) -> None:
    """Its symbols were listed from then on, twice for a file behind a link."""
    root = _tree(tmp_path / "tree", a__py="def wanted(): pass\n", out_S_b__py="def wanted(): pass\n")
    (root / ".ignore").write_text("out\n")
    (root / "link").symlink_to(".")
    workspace = opened(root)
    assert workspace.terms.wait_built(60)
    for path in ("a.py", "out/b.py", "link/a.py", "link/link/out/b.py"):
        assert call_tool(workspace, "outline", path=path)["symbols"] == ["1 function wanted"]
    assert [row["path"] for row in call_tool(workspace, "symbols", query="wanted")["symbols"]] == ["a.py"]


@pytest.mark.needs("root")
def test_on_a_full_disk_every_tool_answers_as_before(tmp_path: Path, opened: Opener) -> None:
    """All but `search` failed with an internal error."""
    root = _tree(tmp_path / "tree", a__py="def first(): pass\n", b__py="def second():\n    first()\n")
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(data)], check=True)
    try:
        workspace = opened(root)
        assert call_tool(workspace, "symbols", query="first")["total"] == 1
        _fill(data / "filler")
        (root / "c.py").write_text("".join(f"def third_{number}(): pass\n" for number in range(3_000)))
        for one in (workspace, opened(_tree(tmp_path / "other", c__py="def third_1(): pass\ndef first(): pass\n"))):
            # The first keeps what it knew, the second was opened on the full disk.
            assert call_tool(one, "symbols", query="first")["total"] == 1
            assert call_tool(one, "symbols", query="third_1", kind="function")["symbols"][0]["path"] == "c.py"
            assert call_tool(one, "outline", path="c.py")["complete"]
            assert call_tool(one, "search", query="where is the first", mode="ranked")["matches"]
            assert call_tool(one, "status")["root"] == str(one.root)
            one.close()
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_an_index_folder_that_cannot_be_written_is_no_error(tmp_path: Path, opened: Opener) -> None:
    root = _tree(tmp_path / "tree", a__py="def first(): pass\n")
    folder = folder_of(root, tmp_path / "data")
    (folder / "lock").mkdir(parents=True)
    (folder / "symbols.db").mkdir()
    workspace = opened(root)
    assert call_tool(workspace, "search", query="first")["total"] == 1
    assert call_tool(workspace, "symbols", query="first")["total"] == 1
