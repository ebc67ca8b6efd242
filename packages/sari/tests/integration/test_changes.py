"""However the tree changes, the next answer is ripgrep's: edits, branch switches, kills, two at once, no watches."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sari.index import watch
from sari.index.search import Query
from sari.index.store import folder_of
from sari.index.workspace_index import WorkspaceIndex
from testing.sari import trees
from testing.sari.edits import Editor
from testing.sari.indexes import Open
from testing.sari.oracle import by_index, by_ripgrep, differences, queries


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"not within two minutes: {what}"
        time.sleep(0.02)


@pytest.mark.timeout(900)
@pytest.mark.needs("git")
def test_through_thousands_of_edits_and_branch_switches(tmp_path: Path, open_index: Open) -> None:
    root = tmp_path / "tree"
    branches = trees.history(root, seed=11, files=1_500)
    rng = random.Random(12)
    editor = Editor(rng, root)
    index = open_index(root)
    assert index.wait_settled(120)
    assert differences(index, root, queries(rng, root, 40)) == []
    edits = 0
    for turn in range(14):
        for _ in range(150):
            editor.edit()
            edits += 1
        if turn % 4 == 1:
            editor.ignore_rules()
        if turn % 3 == 2:
            trees.git(root, "checkout", "-q", "-f", rng.choice(branches))
        sample = [Query("needle"), Query(rf"needle_\d*{turn}\b", "regex"), *queries(rng, root, 6)]
        assert differences(index, root, sample) == []
    assert edits >= 2_000
    assert index.compare() == 0
    assert differences(index, root, queries(rng, root, 40)) == []


@pytest.mark.needs("git")
def test_killed_while_indexing_it_goes_on_where_it_was(tmp_path: Path, open_index: Open) -> None:
    root, data = tmp_path / "tree", tmp_path / "data"
    trees.history(root, seed=21, files=1_200, branches=1)
    folder = folder_of(root, data)
    rng = random.Random(22)
    for after in (0, 1, 3, 6):
        process = subprocess.Popen(
            [sys.executable, "-m", "testing.sari.indexer", root, data], stdin=subprocess.PIPE, cwd=trees.REPOSITORY,
            start_new_session=True,
        )  # fmt: skip
        try:
            _until(lambda n=after: len(list(folder.glob("*.seg"))) >= n, "segments")  # type: ignore[misc]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        trees.write_source(rng, root / f"src/p1/after_kill_{after}.py", after)
        next(iter(sorted(root.glob("src/p2/*/*.py")))).unlink()
    index = open_index(root)
    assert index.wait_listed(120)
    assert index.status()["indexed"] != 0
    assert differences(index, root, queries(rng, root, 10)) == []
    assert index.wait_settled(120)
    assert differences(index, root, queries(rng, root, 15)) == []


def test_a_damaged_index_is_rebuilt(tmp_path: Path, open_index: Open) -> None:
    root = trees.hostile(tmp_path / "tree")
    first = open_index(root)
    assert first.wait_settled(120)
    first.close()
    folder = folder_of(root, tmp_path / "data")
    rng = random.Random(3)
    wanted = by_ripgrep(root, Query("needle"), trees.LATE_NULS)
    for damage in ("flip", "cut", "empty", "manifest", "gone", "older manifest", "older segment"):
        victim = rng.choice(sorted(folder.glob("*.seg")))
        content = bytearray(victim.read_bytes())
        match damage:
            case "flip":
                content[rng.randrange(100, len(content))] ^= 0x40
                victim.write_bytes(content)
            case "cut":
                victim.write_bytes(content[: len(content) // 2])
            case "empty":
                victim.write_bytes(b"")
            case "manifest":
                (folder / "manifest.json").write_bytes(b'{"version": 1, "segm')
            case "gone":
                victim.unlink()
            case "older manifest":
                manifest = (folder / "manifest.json").read_text()
                (folder / "manifest.json").write_text(manifest.replace('"version": 1', '"version": 0'))
            case "older segment":
                victim.write_bytes(content.replace(b'"version": 1', b'"version": 0', 1))
        index = WorkspaceIndex(root, tmp_path / "data")
        try:
            assert index.wait_listed(120)
            assert by_index(index, Query("needle")) == wanted, damage
            assert index.wait_settled(120)
            assert by_index(index, Query("needle")) == wanted, damage
        finally:
            index.close()


def test_of_two_at_once_one_writes_and_the_other_takes_over(tmp_path: Path) -> None:
    root = trees.hostile(tmp_path / "tree")
    first = WorkspaceIndex(root, tmp_path / "data")
    assert first.wait_settled(120)
    second = WorkspaceIndex(root, tmp_path / "data")
    try:
        assert second.wait_listed(120)
        assert first.status()["writer"] is True
        assert second.status()["writer"] is False
        (root / "fresh.txt").write_text("a needle for both\n")
        assert (b"fresh.txt", 1) in by_index(first, Query("needle for both"))
        assert (b"fresh.txt", 1) in by_index(second, Query("needle for both"))
        first.close()
        _until(lambda: second.status()["writer"] is True, "the second to write")
        assert second.wait_listed(120)
        (root / "fresher.txt").write_text("a needle for one\n")
        assert (b"fresher.txt", 1) in by_index(second, Query("needle for one"))
    finally:
        second.close()


def test_without_watches_it_compares_before_each_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_index: Open
) -> None:
    def refuse(self: watch.Watcher, folder: bytes, place: bytes = b"") -> bool:
        raise watch.NoWatching("no watches left")

    monkeypatch.setattr(watch.Watcher, "_add", refuse)
    root = trees.hostile(tmp_path / "tree")
    index = open_index(root)
    assert index.wait_settled(120)
    assert str(index.status()["watching"]).startswith("polling")
    rng = random.Random(8)
    editor = Editor(rng, root / "a")
    for _ in range(8):
        for _ in range(10):
            editor.edit()
        assert differences(index, root, queries(rng, root, 2), trees.LATE_NULS) == []


def test_after_lost_events_everything_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_index: Open
) -> None:
    root = tmp_path / "tree"
    for number in range(30):
        trees.write_source(random.Random(number), root / f"d{number % 3}/f{number}.py", number)
    index = open_index(root)
    assert index.wait_settled(120)
    original = watch.Watcher.drain

    def lossy(self: watch.Watcher) -> watch.Touched:
        touched = original(self)
        return watch.Touched(lost=True) if touched else touched

    monkeypatch.setattr(watch.Watcher, "drain", lossy)
    editor = Editor(random.Random(9), root)
    for _ in range(10):
        for _ in range(10):
            editor.edit()
        assert differences(index, root, [Query("needle"), Query("appended")]) == []


def test_a_folder_listed_before_it_was_watched_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_index: Open
) -> None:
    """Once the rule that hid a folder was gone, its files were listed and read, changed, and only then watched."""
    root = tmp_path / "tree"
    hidden = [root / f"hidden/f{number}.txt" for number in range(80)]
    hidden[0].parent.mkdir(parents=True)
    (root / ".ignore").write_text("hidden/\n")
    for path in hidden:
        path.write_text("before\n")
    index = open_index(root)
    assert index.wait_settled(120)
    original, held = watch.Watcher.drain, [True]

    def late(self: watch.Watcher) -> watch.Touched:
        return watch.Touched(trees={b"elsewhere"}) if held else original(self)

    monkeypatch.setattr(watch.Watcher, "drain", late)
    (root / ".ignore").write_text("")
    assert len(by_index(index, Query("before"))) == 80
    _until(lambda: index.status()["pending"] == 0, "the files to be indexed")
    for path in hidden:
        path.write_text("after\n")
    held.clear()
    assert differences(index, root, [Query("before"), Query("after")]) == []


def test_the_workspace_stays_as_it_was(tmp_path: Path, open_index: Open) -> None:
    root = trees.hostile(tmp_path / "tree")

    def picture() -> list[tuple[str, int, int]]:
        walked = [os.path.join(base, name) for base, folders, files in os.walk(root) for name in [*folders, *files]]
        return sorted((path, os.lstat(path).st_mtime_ns, os.lstat(path).st_size) for path in walked)

    before = picture()
    index = open_index(root)
    assert index.wait_settled(120)
    by_index(index, Query("needle"))
    assert picture() == before
