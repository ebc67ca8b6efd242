"""`sari search` without a warm workspace: ripgrep answers at once, exactly as the daemon would."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from sari.cli.local_search import LocalSearch
from sari.protocol.errors import SariError
from sari.registry.layout import Layout
from sari.registry.locks import FileLock
from sari.tools.workspace import open_workspace
from testing.sari.calls import call_tool, refusal_of
from testing.sari.processes import wait_until
from testing.sari.shim import SARI
from testing.sari.world import World

_ASKED: dict[str, dict[str, object]] = {
    "a literal": {"query": "needle"},
    "words": {"query": "needle", "mode": "words"},
    "a regex": {"query": r"^def \w+", "mode": "regex"},
    "several lines": {"query": r"needle\nneedle", "mode": "regex"},
    "another case": {"query": "NEEDLE", "case": "insensitive"},
    "context": {"query": "here", "context": 2},
    "a folder": {"query": "needle", "globs": ["src"]},
    "not a folder": {"query": "needle", "globs": ["!tests/**"]},
    "a language": {"query": "needle", "languages": ["python"]},
    "nothing": {"query": "no such text"},
    "few tokens": {"query": "here", "max_tokens": 300},
    "what many files define": {"query": "common"},
}


def _tree(root: Path) -> Path:
    for number in range(40):
        (root / f"src/d{number % 3}").mkdir(parents=True, exist_ok=True)
        text = f"def needle_{number}():\n    return needle  # here\n\ndef common():\n    common()\n"
        (root / f"src/d{number % 3}/f{number}.py").write_text(text)
    (root / "tests").mkdir()
    (root / "tests/test_needle.py").write_text("def needle(): pass\n")
    (root / "node_modules/x").mkdir(parents=True)
    (root / "node_modules/x/index.js").write_text("function needle() {}\n")
    # More lines than are kept of a file, and a definition after them.
    (root / "src/zz_long.py").write_text("needle\n" * 2_500 + "def needle():\n    pass\n")
    (root / "src/late_nul.txt").write_bytes(b"needle\n" + b"x\n" * 40_000 + b"\0\nneedle\n")
    (root / "src/binary.bin").write_bytes(b"needle\0needle\n")
    (root / "src/wide.txt").write_text("x" * 3_000 + "needle" + "y" * 3_000 + "\n")
    (root / "src/utf16.txt").write_bytes("needle in UTF-16\n".encode("utf-16"))
    (root / os.fsdecode(b"src/odd\xff\nname.txt")).write_text("needle\n")
    (root / ".hidden").write_text("needle\n")
    (root / ".ignore").write_text("ignored.txt\n")
    (root / "ignored.txt").write_text("needle\n")
    return root


def test_an_answer_without_the_daemon_is_the_daemons_answer(tmp_path: Path) -> None:
    root = _tree(tmp_path / "tree")
    workspace = open_workspace(root, tmp_path / "data")
    try:
        wait_until(workspace.is_warm, "the workspace is warm")
        for name, asked in _ASKED.items():
            local, cursor = LocalSearch(str(root)), ""
            for _ in range(4):
                page = {**asked, **({"cursor": cursor} if cursor else {})}
                ours = local.page(page).structured
                assert ours == call_tool(workspace, "search", **page), name
                cursor = str(ours["cursor"] or "")
                if not cursor:
                    break
        for wrong in ({"query": "("}, {"query": ""}, {"query": "x", "globs": ["{a"]}, {"query": "x", "context": -1}):
            asked = {**wrong, "mode": "regex"}
            with pytest.raises(SariError) as refused:
                LocalSearch(str(root)).page(asked)
            assert str(refused.value) == refusal_of(workspace, "search", **asked)
    finally:
        workspace.close()


def _in_a_terminal(world: World, root: Path, *words: str) -> tuple[int, str]:
    """Run a search that prints to a terminal. Returns its exit code and what it printed."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [SARI, "search", *words], cwd=root, env=world.environ, stdin=subprocess.DEVNULL,
            stdout=theirs, stderr=subprocess.PIPE, check=False, timeout=120,
        )  # fmt: skip
        assert done.stderr == b""
        # It has written everything, so the end of it is the mark that follows.
        os.write(theirs, b"\0")
        printed = b""
        while not printed.endswith(b"\0"):
            printed += os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, printed[:-1].decode().replace("\r\n", "\n")


def test_in_a_terminal_the_first_search_does_not_wait_for_a_daemon(world: World) -> None:
    root = world.workspace("project")
    world.data.mkdir(parents=True)
    layout = Layout(str(world.registry_file))
    with FileLock(layout.start_lock) as lock:
        # Nobody can start a daemon now.
        lock.acquire(10.0)
        assert _in_a_terminal(world, root, "needle") == (0, "hello.txt:1:a needle in here\n")
        assert _in_a_terminal(world, root, "no such text") == (1, "")
        assert world.daemons() == []
    wait_until(lambda: world.is_warm(root), "the workspace is warm for the next search")
    assert _in_a_terminal(world, root, "needle") == (0, "hello.txt:1:a needle in here\n")
    world.wait_for_only(world.one_daemon())


def test_in_a_pipe_the_first_search_does_not_wait_for_a_daemon(world: World) -> None:
    root = world.workspace("project")
    world.data.mkdir(parents=True)
    with FileLock(Layout(str(world.registry_file)).start_lock) as lock:
        # Nobody can start a daemon now.
        lock.acquire(10.0)
        # Ends when the pipe is closed, also by the process that starts the daemon.
        assert world.sari("search", "needle", "--workspace", str(root)).stdout == "hello.txt:1:a needle in here\n"
        assert world.daemons() == []
    wait_until(lambda: world.is_warm(root), "the workspace is warm for the next search")
    world.wait_for_only(world.one_daemon())


def test_the_daemon_says_whether_a_workspace_is_warm(world: World) -> None:
    root, other = world.workspace("project"), world.workspace("other")
    assert world.sari("search", "needle", "--workspace", str(root)).returncode == 0
    wait_until(lambda: world.is_warm(root), "the workspace is warm")
    assert not world.is_warm(other)
    # It is searched all the same, and opened.
    assert world.sari("search", "needle", "--workspace", str(other)).stdout == "hello.txt:1:a needle in here\n"
    wait_until(lambda: world.is_warm(other), "the other workspace is warm")
