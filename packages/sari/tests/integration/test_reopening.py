"""A workspace that is opened again answers at once from its persisted index, and the answer is ripgrep's."""

import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sari.index import build, content, stamp_workers, watch
from sari.index.search import Query
from testing.sari import trees
from testing.sari.edits import Editor
from testing.sari.indexes import Open
from testing.sari.oracle import differences, queries


@pytest.mark.timeout(600)
@pytest.mark.needs("git")
@pytest.mark.parametrize("by_workers", [False, True])
def test_what_changed_while_it_was_closed_is_in_the_first_answer(
    tmp_path: Path, open_index: Open, monkeypatch: pytest.MonkeyPatch, by_workers: bool
) -> None:
    if by_workers:
        monkeypatch.setattr(stamp_workers, "ALONE_BELOW", 1)
    root = tmp_path / "tree"
    branches = trees.history(root, seed=31, files=700)
    rng = random.Random(32)
    editor = Editor(rng, root)
    for turn in range(6):
        index = open_index(root)
        sample = [Query("needle"), *queries(rng, root, 12)]
        assert differences(index, root, sample) == []
        assert index.wait_settled(120)
        index.close()
        for _ in range(60):
            editor.edit()
        if turn % 2:
            editor.ignore_rules()
        if turn == 3:
            trees.git(root, "checkout", "-q", "-f", rng.choice(branches))


def test_the_first_answer_does_not_wait_for_watches(
    tmp_path: Path, open_index: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    trees.generated(root, 300)
    # A file that was written just before it is indexed is read again: its times may not reveal the next change.
    deadline = time.monotonic() + 120
    while any(content.is_fresh(found.st_mtime_ns, found.st_ctime_ns) for found in map(Path.stat, root.rglob("*"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first = open_index(root)
    assert first.wait_settled(120)
    first.close()
    monkeypatch.setattr(watch.Watcher, "watch_tree", lambda *_, **__: pytest.fail("watches were set first"))
    monkeypatch.setattr("sari.index.workspace_index._ANSWER_FIRST_S", 600.0)
    index = open_index(root)
    assert differences(index, root, [Query("unique_000077_fn"), Query("return")]) == []
    assert index.status()["pending"] == 0
    assert index.status()["state"] == "ready"
    (root / "pkg1/mod0/new.py").write_text("made_before_watches = 1\n")
    assert differences(index, root, [Query("made_before_watches")]) == []


def test_an_index_that_is_being_built_is_closed_without_waiting_for_its_workers(
    tmp_path: Path, open_index: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    halted: list[int] = []
    begun = threading.Event()

    class HaltedWorker(build._Worker):
        def __init__(self, root: Path) -> None:
            super().__init__(root)
            os.kill(self._process.pid, signal.SIGSTOP)
            halted.append(self._process.pid)

        def _ask(self, chunk: Sequence[bytes], target: Path) -> int | None:
            begun.set()
            return super()._ask(chunk, target)

    monkeypatch.setattr(build, "ALONE_BELOW", 1)
    monkeypatch.setattr(build, "_Worker", HaltedWorker)
    index = open_index(trees.generated(tmp_path / "tree", 50))
    assert begun.wait(120)
    closing = threading.Thread(target=index.close, daemon=True)
    closing.start()
    closing.join(60)
    if closing.is_alive():
        for pid in halted:
            os.kill(pid, signal.SIGKILL)
        pytest.fail("closing waits for the workers")
