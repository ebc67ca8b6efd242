"""Files that cannot be parsed within the limits: each answer that definitions decide names them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sari.languages.parse import MAX_PARSED_BYTES
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import call_tool, refusal_of
from testing.sari.processes import wait_until
from testing.sari.trees import git

_SERVER = """#!{python}
import json, sys
from pathlib import Path
while head := sys.stdin.buffer.readline():
    sys.stdin.buffer.readline()
    message = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
    result = {{"capabilities": {{"referencesProvider": True, "implementationProvider": True}}}}
    if message["method"].startswith("textDocument/"):
        result = json.loads(Path({places!r}).read_text())
    if "id" in message:
        body = json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}).encode()
        sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        sys.stdout.buffer.flush()
"""
_NOTE = "Cannot be parsed: large.go"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "go.mod").write_text("module m\n\ngo 1.19\n")
    (root / "a.go").write_text("package m\n\nfunc Open() {}\n\nfunc use() {\n\tOpen()\n}\n")
    (root / "large.go").write_text(
        "package m\n\nfunc other() {\n\tOpen()\n}\n" + "// filler\n" * (MAX_PARSED_BYTES // 10)
    )
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A language server that returns the places in this file."""
    (tmp_path / "bin").mkdir()
    program, places = tmp_path / "bin/gopls", tmp_path / "places.json"
    program.write_text(_SERVER.format(python=sys.executable, places=str(places)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return places


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    assert opened.index.wait_settled(120)
    wait_until(lambda: opened.index.change() >= 0, "the tree is watched")
    yield opened
    opened.close()


def place(file: Path, line: int, column: int) -> dict[str, object]:
    at = {"line": line - 1, "character": column}
    return {"uri": file.as_uri(), "range": {"start": at, "end": at}}


def typed(workspace: Workspace, tool: str) -> Any:
    """Return the answer by types."""
    answers: list[Any] = []

    def is_ready() -> bool:
        answers.append(call_tool(workspace, tool, name="Open"))
        return bool(answers[-1]["by"] == "types")

    wait_until(is_ready, "an answer by types")
    return answers[-1]


def test_answers_by_types_name_the_files_in_which_sari_cannot_see_calls_or_definitions(
    places: Path, root: Path, workspace: Workspace
) -> None:
    places.write_text(json.dumps([place(root / "a.go", 6, 1), place(root / "large.go", 4, 1)]))
    callers = typed(workspace, "callers")
    assert [row["path"] for row in callers["callers"]] == ["a.go"]
    assert callers["complete"] is False
    assert _NOTE in callers["note"]
    implementations = typed(workspace, "implementations")
    assert [row["path"] for row in implementations["implementations"]] == ["a.go"]
    assert implementations["complete"] is False
    assert _NOTE in implementations["note"]


def test_answers_by_types_name_a_file_that_may_define_the_name_too(
    places: Path, root: Path, workspace: Workspace
) -> None:
    places.write_text(json.dumps([place(root / "a.go", 6, 1)]))
    for tool in ("references", "callers", "implementations"):
        answer = typed(workspace, tool)
        assert (answer["complete"], _NOTE in answer["note"]) == (False, True), tool


def test_a_map_names_the_files_whose_definitions_it_does_not_know(workspace: Workspace) -> None:
    drawn = call_tool(workspace, "repo_map")
    assert drawn["complete"] is False
    assert "cannot be parsed: large.go" in drawn["note"].replace("Cannot", "cannot")


def test_nobody_is_told_that_a_file_which_cannot_be_parsed_lacks_a_definition(workspace: Workspace) -> None:
    assert "cannot be parsed" in refusal_of(workspace, "read", path="large.go", symbol="other")
    history = call_tool(workspace, "history", symbol="other")
    assert _NOTE in history["note"]
    assert "Nothing is called" not in history["note"]
    history = call_tool(workspace, "history", symbol="other", path="large.go")
    assert _NOTE in history["note"]


def test_all_files_that_cannot_be_parsed_are_counted(root: Path, workspace: Workspace) -> None:
    for number in range(8):
        (root / f"large{number}.go").write_bytes((root / "large.go").read_bytes())
    answer = call_tool(workspace, "references", name="Open")
    assert "and 4 more" in answer["note"]
    assert "and 4 more" in call_tool(workspace, "repo_map")["note"]
