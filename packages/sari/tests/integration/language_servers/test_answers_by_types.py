"""Answers by types, from real language servers, in repositories that would like to run programs."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sari.tools.workspace import Workspace
from testing.sari.calls import call_tool
from testing.sari.language_servers import CPP, GO, PYTHON, TYPESCRIPT, Opener, is_alive, make_hostile, make_tree
from testing.sari.parts import node_part
from testing.sari.processes import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("language-servers")]

_CASES = [
    pytest.param(PYTHON, "A.close", ["a.py:2", "b.py:5"], ["b.py:5"], marks=pytest.mark.needs("npm"), id="pyright"),
    pytest.param(
        TYPESCRIPT, "A.close", ["a.ts:2", "b.ts:4"], ["b.ts:4"], marks=pytest.mark.needs("npm"), id="tsserver"
    ),
    pytest.param(GO, "A.Close", ["a.go:5", "b.go:4"], ["b.go:4"], marks=pytest.mark.needs("gopls"), id="gopls"),
    pytest.param(
        CPP, "A.close", ["a.cpp:2", "a.h:2", "b.cpp:3"], ["b.cpp:3"], marks=pytest.mark.needs("clangd"), id="clangd"
    ),
]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers from npm in front of those from Debian."""
    path = f"{node_part('language-servers') / 'node_modules/.bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)


def _typed(workspace: Workspace, tool: str, **arguments: object) -> Any:
    """The answer once it is by types; a note that says why not fails at once."""
    answers: list[Any] = []

    def is_typed() -> bool:
        answers.append(call_tool(workspace, tool, **arguments))
        assert "No answer by types" not in answers[-1]["note"], answers[-1]["note"]
        return bool(answers[-1]["by"] == "types")

    wait_until(is_typed, "the answer is by types", 240)
    return answers[-1]


def _places(answer: Any, tool: str = "references") -> list[str]:
    return [f"{file['path']}:{line}" for file in answer[tool] for line in _lines(file)]


def _lines(file: Any) -> list[str]:
    """The numbers of the lines: of uses they are given, of a definition the first is part of its row."""
    return list(file["lines"]) if "lines" in file else [row.partition("-")[0] for row in file["symbols"]]


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("files", "name", "references", "callers"), _CASES)
def test_answers_are_by_types_once_the_server_is_ready_and_run_nothing_of_the_repository(
    tmp_path: Path, opened: Opener, files: dict[str, str], name: str, references: list[str], callers: list[str]
) -> None:
    root, mark = make_tree(tmp_path / "tree", files), tmp_path / "mark"
    make_hostile(root, mark)
    workspace = opened(root)
    before = sorted(path for path in root.rglob("*"))
    first = call_tool(workspace, "references", name=name)
    assert first["by"] == "syntax"
    assert "being prepared" in first["note"]
    assert len(_places(first)) > len(references)
    assert _places(_typed(workspace, "references", name=name)) == references
    assert _places(_typed(workspace, "callers", name=name), "callers") == callers
    assert sorted(path for path in root.rglob("*")) == before, "a server wrote into the workspace"
    assert not mark.exists(), mark.read_text()


@pytest.mark.needs("gopls")
def test_an_edit_is_in_the_next_answer_by_types(tmp_path: Path, opened: Opener) -> None:
    root = make_tree(tmp_path / "tree", GO)
    workspace = opened(root)
    _typed(workspace, "references", name="A.Close")
    (root / "c.go").write_text("package m\n\nfunc G(x A) { x.Close() }\n")
    assert "c.go:3" in _places(call_tool(workspace, "references", name="A.Close"))
    assert _places(_typed(workspace, "references", name="A.Close")) == ["a.go:5", "b.go:4", "c.go:3"]


@pytest.mark.needs("gopls")
def test_implementations_are_by_types(tmp_path: Path, opened: Opener) -> None:
    files = {**GO, "c.go": "package m\n\ntype Closer interface {\n\tClose()\n}\n"}
    workspace = opened(make_tree(tmp_path / "tree", files))
    answer = _typed(workspace, "implementations", name="Closer")
    assert _places(answer, "implementations") == ["a.go:3", "a.go:7"]


@pytest.mark.needs("gopls")
def test_a_server_that_refuses_requests_about_one_file_answers_about_others(tmp_path: Path, opened: Opener) -> None:
    left_out = "package m\n\n" + "".join(f"func Left{number}() {{}}\n" for number in range(4))
    workspace = opened(make_tree(tmp_path / "tree", {**GO, "left_windows.go": left_out}))
    _typed(workspace, "references", name="A.Close")
    (session,) = workspace.types.sessions()
    first = session.pid
    for number in range(4):

        def is_settled(name: str = f"Left{number}") -> bool:
            return "being prepared" not in call_tool(workspace, "references", name=name)["note"]

        wait_until(is_settled, "the server has answered or refused", 240)
    assert _places(_typed(workspace, "references", name="B.Close")) == ["a.go:9", "b.go:5"]
    assert session.pid == first


@pytest.mark.needs("gopls")
def test_a_killed_server_is_restarted(tmp_path: Path, opened: Opener) -> None:
    workspace = opened(make_tree(tmp_path / "tree", GO))
    _typed(workspace, "references", name="A.Close")
    (session,) = workspace.types.sessions()
    first = session.pid
    assert first is not None
    (server,) = _children(first)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: session.pid is None, "the supervisor has ended")
    assert _places(_typed(workspace, "references", name="B.Close")) == ["a.go:9", "b.go:5"]
    assert session.pid not in (None, first)


@pytest.mark.needs("gopls")
def test_an_idle_server_is_ended(tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARI_LANGUAGE_SERVER_IDLE_SEC", "0.2")
    workspace = opened(make_tree(tmp_path / "tree", GO))
    _typed(workspace, "references", name="A.Close")
    (session,) = workspace.types.sessions()
    wait_until(lambda: session.pid is None, "the idle server has ended")


@pytest.mark.needs("gopls")
def test_no_server_outlives_a_killed_daemon(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree", GO)
    script = (
        "import sys, time; from pathlib import Path; from sari.tools.workspace import open_workspace\n"
        "from testing.sari.calls import call_tool\n"
        f"w = open_workspace(Path({str(root)!r}), Path({str(tmp_path / 'data')!r}))\n"
        "while call_tool(w, 'references', name='A.Close')['by'] != 'types': time.sleep(0.1)\n"
        "print(w.types.sessions()[0].pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        supervisor = int(daemon.stdout.readline())
        all_started = [supervisor, *_children(supervisor)]
        assert len(all_started) == 2
        daemon.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in all_started), "all have ended")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
