"""Answers by types, from real language servers, in repositories that would like to run programs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sari.lsp.client import LspClient
from sari.registry.allowed import allow
from sari.registry.layout import Layout
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import call_tool
from testing.sari.parts import node_part
from testing.sari.processes import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("language-servers")]

Opener = Callable[[Path], Workspace]

_PYTHON = {
    "a.py": "class A:\n    def close(self):\n        pass\n\n\nclass B:\n    def close(self):\n        pass\n",
    "b.py": "from a import A, B\n\n\ndef f(x: A, y: B):\n    x.close()\n    y.close()\n",
}
_TYPESCRIPT = {
    "tsconfig.json": '{"compilerOptions": {"plugins": [{"name": "evil"}]}}',
    "a.ts": "export class A {\n  close(): void {}\n}\nexport class B {\n  close(): void {}\n}\n",
    "b.ts": "import { A, B } from './a';\n\nexport function f(x: A, y: B) {\n  x.close();\n  y.close();\n}\n",
}
_GO = {
    "go.mod": "module m\n\ngo 1.19\n",
    "a.go": "package m\n\ntype A struct{}\n\nfunc (a A) Close() {}\n\ntype B struct{}\n\nfunc (b B) Close() {}\n",
    "b.go": "package m\n\nfunc F(x A, y B) {\n\tx.Close()\n\ty.Close()\n}\n",
}
_CPP = {
    "a.h": "struct A {\n  void close();\n};\nstruct B {\n  void close();\n};\n",
    "a.cpp": '#include "a.h"\nvoid A::close() {}\nvoid B::close() {}\n',
    "b.cpp": '#include "a.h"\nvoid f(A x, B y) {\n  x.close();\n  y.close();\n}\n',
}
_CASES = [
    pytest.param(_PYTHON, "A.close", ["a.py:2", "b.py:5"], ["b.py:5"], marks=pytest.mark.needs("npm"), id="pyright"),
    pytest.param(
        _TYPESCRIPT, "A.close", ["a.ts:2", "b.ts:4"], ["b.ts:4"], marks=pytest.mark.needs("npm"), id="tsserver"
    ),
    pytest.param(_GO, "A.Close", ["a.go:5", "b.go:4"], ["b.go:4"], marks=pytest.mark.needs("gopls"), id="gopls"),
    pytest.param(
        _CPP, "A.close", ["a.cpp:2", "a.h:2", "b.cpp:3"], ["b.cpp:3"], marks=pytest.mark.needs("clangd"), id="clangd"
    ),
]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    all_opened: list[Workspace] = []

    def open_one(root: Path) -> Workspace:
        workspace = open_workspace(root, tmp_path / "data")
        all_opened.append(workspace)
        assert workspace.index.wait_settled(120)
        wait_until(lambda: workspace.index.change() >= 0, "the tree is watched")
        return workspace

    yield open_one
    for workspace in all_opened:
        workspace.close()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers from npm in front of those from Debian."""
    path = f"{node_part('language-servers') / 'node_modules/.bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if "a.cpp" in files:
        commands = [f'{{"directory": "{root}", "file": "{f}", "command": "c++ -c {f}"}}' for f in ("a.cpp", "b.cpp")]
        (root / "compile_commands.json").write_text(f"[{', '.join(commands)}]")
    return root


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
    root, mark = _tree(tmp_path / "tree", files), tmp_path / "mark"
    _make_hostile(root, mark)
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


def _make_hostile(root: Path, mark: Path) -> None:
    """Whatever a server or its tools could run or load from the workspace leaves a mark."""
    script = f"#!/bin/sh\necho $0 >> {mark}\n"
    node = f"require('fs').appendFileSync({str(mark)!r}, __filename + '\\n'); module.exports = () => ({{}});\n"
    python = f"open({str(mark)!r}, 'a').write(__file__ + '\\n')\n"
    programs = ["python", "python3", ".venv/bin/python", ".venv/bin/python3", "node", "go", "git", "cc", "c++", "gcc"]
    names = ["pyright-langserver", "typescript-language-server", "gopls", "clangd", "tsserver"]
    programs += [f"node_modules/.bin/{name}" for name in names] + names
    for program in programs:
        path = root / "bin" / program if "/" not in program else root / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    for module in ("json", "os", "sys", "sitecustomize", "usercustomize"):
        (root / f"{module}.py").write_text(python)
    for module in ("typescript/lib/tsserver.js", "typescript/lib/typescript.js", "evil/index.js", "pyright/index.js"):
        path = root / "node_modules" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(node)
    (root / "node_modules/typescript/package.json").write_text('{"name": "typescript", "version": "5.9.3"}')
    (root / "pyrightconfig.json").write_text('{"venvPath": ".", "venv": ".venv"}')
    (root / ".clangd").write_text(f"CompileFlags:\n  Compiler: {root}/bin/cc\n")
    if (root / "go.mod").exists():
        (root / "c.go").write_text('package m\n\n// #cgo CFLAGS: -fplugin=./evil.so\n// int f();\nimport "C"\n')
        (root / "go.env").write_text(f"GOFLAGS=-toolexec={root}/bin/cc\n")
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    with open(root / ".git/config", "a") as file:
        file.write(f"[core]\n\tfsmonitor = {root}/bin/cc\n")
    if (root / "a.cpp").exists():
        load = "-Xclang -load -Xclang ./evil.so -fplugin=./evil.so"
        commands = [
            f'{{"directory": "{root}", "file": "{f}", "command": "{root}/bin/c++ {load} -c {f}"}}'
            for f in ("a.cpp", "b.cpp")
        ]
        (root / "compile_commands.json").write_text(f"[{', '.join(commands)}]")
        source = root.parent / "evil.c"
        source.write_text(
            "#include <stdio.h>\n__attribute__((constructor)) static void run(void)"
            f' {{ FILE *f = fopen("{mark}", "a"); fputs("evil.so\\n", f); fclose(f); }}\n'
        )
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", root / "evil.so", source], check=True)


@pytest.mark.needs("gopls")
def test_an_edit_is_in_the_next_answer_by_types(tmp_path: Path, opened: Opener) -> None:
    root = _tree(tmp_path / "tree", _GO)
    workspace = opened(root)
    _typed(workspace, "references", name="A.Close")
    (root / "c.go").write_text("package m\n\nfunc G(x A) { x.Close() }\n")
    assert "c.go:3" in _places(call_tool(workspace, "references", name="A.Close"))
    assert _places(_typed(workspace, "references", name="A.Close")) == ["a.go:5", "b.go:4", "c.go:3"]


@pytest.mark.needs("gopls")
def test_implementations_are_by_types(tmp_path: Path, opened: Opener) -> None:
    files = {**_GO, "c.go": "package m\n\ntype Closer interface {\n\tClose()\n}\n"}
    workspace = opened(_tree(tmp_path / "tree", files))
    answer = _typed(workspace, "implementations", name="Closer")
    assert _places(answer, "implementations") == ["a.go:3", "a.go:7"]


@pytest.mark.needs("gopls")
def test_a_server_that_refuses_requests_about_one_file_answers_about_others(tmp_path: Path, opened: Opener) -> None:
    left_out = "package m\n\n" + "".join(f"func Left{number}() {{}}\n" for number in range(4))
    workspace = opened(_tree(tmp_path / "tree", {**_GO, "left_windows.go": left_out}))
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
    workspace = opened(_tree(tmp_path / "tree", _GO))
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
    workspace = opened(_tree(tmp_path / "tree", _GO))
    _typed(workspace, "references", name="A.Close")
    (session,) = workspace.types.sessions()
    wait_until(lambda: session.pid is None, "the idle server has ended")


@pytest.mark.needs("gopls")
def test_no_server_outlives_a_killed_daemon(tmp_path: Path) -> None:
    root = _tree(tmp_path / "tree", _GO)
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
    wait_until(lambda: not any(_is_alive(pid) for pid in all_started), "all have ended")


def test_a_server_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    hog = "import time\nkept = []\nwhile True:\n    kept.append(bytearray(4 << 20)); time.sleep(0.01)\n"
    client = LspClient([sys.executable, "-c", hog], os.environ, tmp_path, 64, {})
    try:
        wait_until(lambda: not client.is_running, "the hog was ended")
    finally:
        client.close()


_DEAF = """#!{python}
import sys, time
head = sys.stdin.buffer.readline()
sys.stdin.buffer.readline()
sys.stdin.buffer.read(int(head.split(b":")[1]))
body = b'{{"jsonrpc": "2.0", "id": 1, "result": {{"capabilities": {{"referencesProvider": true}}}}}}'
sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
sys.stdout.buffer.flush()
open({mark!r}, "w").close()
time.sleep(3600)
"""


def test_a_server_that_stops_reading_delays_neither_answers_nor_the_end(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, programs = tmp_path / "mark", tmp_path / "bin"
    programs.mkdir()
    (programs / "gopls").write_text(_DEAF.format(python=sys.executable, mark=str(mark)))
    (programs / "gopls").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    # More than a pipe holds.
    long = _GO["a.go"] + "// a long file\n" * 50_000
    workspace = opened(_tree(tmp_path / "tree", {**_GO, "a.go": long}))
    assert call_tool(workspace, "references", name="A.Close")["by"] == "syntax"
    wait_until(mark.exists, "the server has answered once")
    (session,) = workspace.types.sessions()
    supervisor = session.pid
    assert supervisor is not None
    assert call_tool(workspace, "references", name="A.Close")["by"] == "syntax"
    workspace.close()
    assert not _is_alive(supervisor)


_LIAR = """#!{python}
import json, sys
def send(body):
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    sys.stdout.buffer.flush()
while head := sys.stdin.buffer.readline():
    sys.stdin.buffer.readline()
    message = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
    if message["method"] == "initialize":
        result = {{"capabilities": {{"referencesProvider": True}}}}
        send(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}).encode())
    elif "id" in message:
        said = {said!r}
        if isinstance(said, bytes):
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()
        else:
            send(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **json.loads(said)}}).encode())
"""


def _said(uri: str, line: int, character: int) -> str:
    position = {"line": line, "character": character}
    return json.dumps({"result": [{"uri": uri, "range": {"start": position, "end": position}}]})


@pytest.mark.parametrize(
    "said",
    [
        b"panic: goroutine 1\n\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000,
        b"Content-Length: 3\r\n\r\n\xff\xfe{",
        '{"result": 17}',
        '{"result": ["x", {"uri": 5, "range": 5}, {"uri": "file:///", "range": {}}]}',
        '{"result": [{"uri": "ROOT/a.go", "range": {"start": "there"}}]}',
        '{"error": {"code": 1, "message": "no"}}',
        _said("ROOT/a.go", -1_000_000, 0),
        _said("ROOT/a.go", 1 << 60, 0),
        _said("ROOT/a.go", 0, -7),
        _said("ROOT/smile.go", 2, 5),
        _said("ROOT/../secret.go", 0, 0),
        _said("ROOT/link/secret.go", 0, 0),
        _said("file:///etc/passwd", 0, 0),
    ],
)
def test_whatever_a_server_says_the_answer_is_of_the_workspace(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch, said: bytes | str
) -> None:
    root, programs = _tree(tmp_path / "tree", _GO), tmp_path / "bin"
    # In the third line, a server that counts UTF-16 units wrongly points into the middle of a character.
    (root / "smile.go").write_text('package m\n\nvar 😀_ = "😀"\n')
    (tmp_path / "outside").mkdir()
    for secret in (tmp_path / "secret.go", tmp_path / "outside/secret.go"):
        secret.write_text("package secret // Close\n")
    (root / "link").symlink_to(tmp_path / "outside")
    programs.mkdir()
    placed = said if isinstance(said, bytes) else said.replace("ROOT", root.as_uri())
    (programs / "gopls").write_text(_LIAR.format(python=sys.executable, said=placed))
    (programs / "gopls").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    workspace = opened(root)
    answers: list[Any] = []

    def is_settled() -> bool:
        answers.append(call_tool(workspace, "references", name="A.Close"))
        return "being prepared" not in str(answers[-1].get("note"))

    wait_until(is_settled, "the server has answered or failed", 240)
    call_tool(workspace, "callers", name="A.Close")
    assert "secret" not in str(answers)
    assert "root:" not in str(answers)


def test_a_server_that_runs_build_scripts_needs_the_users_trust(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, programs = tmp_path / "mark", tmp_path / "bin"
    programs.mkdir()
    (programs / "rust-analyzer").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (programs / "rust-analyzer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    root = _tree(tmp_path / "tree", {"Cargo.toml": "[package]\n", "src/lib.rs": "pub fn close() {}\n"})
    workspace = opened(root)
    said: list[str] = []

    def says(text: str) -> bool:
        said.append(call_tool(workspace, "references", name="close")["note"])
        return text in said[-1]

    wait_until(lambda: says("sari allow --language-servers"), "it says how to trust")
    assert not mark.exists()
    allow(Layout(str(tmp_path / "data/server.json")), str(root), what="language_servers")
    wait_until(lambda: says("rust-analyzer") and mark.exists(), "the server was run")


def test_a_server_from_inside_the_workspace_is_never_run(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, mark = _tree(tmp_path / "tree", _PYTHON), tmp_path / "mark"
    _make_hostile(root, mark)
    monkeypatch.setenv("PATH", f"{root}/bin:{root}/node_modules/.bin:.:/nowhere")
    workspace = opened(root)
    for _ in range(3):
        answer = call_tool(workspace, "references", name="A.close")
        assert answer["by"] == "syntax"
    assert "types" not in answer["note"].replace("not by types", "")
    assert not mark.exists()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
