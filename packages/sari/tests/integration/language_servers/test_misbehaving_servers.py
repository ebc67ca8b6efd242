"""Language servers that misbehave, and repositories that would like to have one run."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sari.lsp.client import LspClient
from sari.registry.allowed import allow
from sari.registry.layout import Layout
from testing.sari.calls import call_tool
from testing.sari.language_servers import GO, PYTHON, Opener, is_alive, make_hostile, make_tree
from testing.sari.processes import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("language-servers")]


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
    long = GO["a.go"] + "// a long file\n" * 50_000
    workspace = opened(make_tree(tmp_path / "tree", {**GO, "a.go": long}))
    assert call_tool(workspace, "references", name="A.Close")["by"] == "syntax"
    wait_until(mark.exists, "the server has answered once")
    (session,) = workspace.types.sessions()
    supervisor = session.pid
    assert supervisor is not None
    assert call_tool(workspace, "references", name="A.Close")["by"] == "syntax"
    workspace.close()
    assert not is_alive(supervisor)


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
    # pytest puts the name into an environment variable: with one of 200 KB, no program could be started.
    ids=lambda said: str(said)[:60],
)
def test_whatever_a_server_says_the_answer_is_of_the_workspace(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch, said: bytes | str
) -> None:
    root, programs = make_tree(tmp_path / "tree", GO), tmp_path / "bin"
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
    root = make_tree(tmp_path / "tree", {"Cargo.toml": "[package]\n", "src/lib.rs": "pub fn close() {}\n"})
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
    root, mark = make_tree(tmp_path / "tree", PYTHON), tmp_path / "mark"
    make_hostile(root, mark)
    monkeypatch.setenv("PATH", f"{root}/bin:{root}/node_modules/.bin:.:/nowhere")
    workspace = opened(root)
    for _ in range(3):
        answer = call_tool(workspace, "references", name="A.close")
        assert answer["by"] == "syntax"
    assert "types" not in answer["note"].replace("not by types", "")
    assert not mark.exists()
