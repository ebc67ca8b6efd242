"""The many shapes of a git checkout, and large ones that change at once: the next answer is ripgrep's."""

import os
import random
from pathlib import Path

import pytest

from sari.index.disk import Disk
from sari.index.search import Query
from sari.index.table import Numbers
from sari.index.workspace_index import WorkspaceIndex
from testing.sari import trees
from testing.sari.indexes import Open
from testing.sari.oracle import by_index, differences, queries

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600)]


def _same(index: WorkspaceIndex, root: Path, seed: int) -> None:
    """Every line is ripgrep's, and a full comparison with the disk finds nothing that was missed."""
    sample = [Query("needle"), Query("alpha"), *queries(random.Random(seed), root, 4)]
    assert differences(index, root, sample) == []
    assert index.compare() == 0


def test_a_worktree_keeps_its_repositorys_exclude_file(tmp_path: Path, open_index: Open) -> None:
    main = tmp_path / "main"
    trees.history(main, seed=31, files=120, branches=2)
    root = tmp_path / "tree"
    trees.git(main, "worktree", "add", "-q", str(root), "topic-1")
    (root / "private.txt").write_text("a needle of my own\n")
    index = open_index(root)
    assert index.wait_settled(120)
    _same(index, root, 32)
    assert (b"private.txt", 1) in by_index(index, Query("needle of my own"))
    (main / ".git/info").mkdir(exist_ok=True)
    (main / ".git/info/exclude").write_text("private.txt\n")
    assert by_index(index, Query("needle of my own")) == set()
    (main / ".git/info/exclude").write_text("")
    trees.git(root, "checkout", "-q", "--detach", "main")
    _same(index, root, 33)
    assert (b"private.txt", 1) in by_index(index, Query("needle of my own"))


def test_a_submodule_moves_to_another_commit(tmp_path: Path, open_index: Open) -> None:
    library, root = tmp_path / "library", tmp_path / "tree"
    trees.history(library, seed=41, files=90, branches=2)
    trees.history(root, seed=42, files=60, branches=1)
    trees.git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib/inner")
    assert (root / "lib/inner/.git").is_file()
    index = open_index(root)
    assert index.wait_settled(120)
    _same(index, root, 43)
    assert any(path.startswith(b"lib/inner/") for path, _ in by_index(index, Query("def unique_")))
    trees.git(root / "lib/inner", "checkout", "-q", "origin/topic-1")
    _same(index, root, 44)
    trees.git(root, "submodule", "-q", "deinit", "-f", "lib/inner")
    _same(index, root, 45)
    assert not any(path.startswith(b"lib/inner/") for path, _ in by_index(index, Query("def unique_")))


def test_a_sparse_checkout_widens_and_narrows(tmp_path: Path, open_index: Open) -> None:
    root = tmp_path / "tree"
    trees.history(root, seed=51, files=300, branches=1)
    trees.git(root, "sparse-checkout", "set", "src/p1", "src/p2")
    index = open_index(root)
    assert index.wait_settled(120)
    few = len(index.paths())
    _same(index, root, 52)
    trees.git(root, "sparse-checkout", "disable")
    _same(index, root, 53)
    assert len(index.paths()) > 5 * few
    trees.git(root, "sparse-checkout", "set", "src/p3")
    _same(index, root, 54)


def test_a_checkout_of_ten_thousand_files_is_searchable_at_once(tmp_path: Path, open_index: Open) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    trees.git(root, "init", "-q", "-b", "main")
    for word in ("before", "after"):
        for number in range(10_000):
            path = root / f"d{number % 100}/f{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{word} the checkout, needle_{word}_{number}\n")
        trees.git(root, "add", "-A")
        trees.git(root, "commit", "-qm", word)
    index = open_index(root)
    assert index.wait_settled(120)
    trees.git(root, "checkout", "-q", "HEAD~1")
    # Both the first answer, made from files that are not indexed again yet, and the one from the index.
    assert len(by_index(index, Query("before the checkout"))) == 10_000
    assert by_index(index, Query("after the checkout")) == set()
    assert differences(index, root, [Query("needle_before_77"), Query("needle_after_77")]) == []
    assert index.compare() == 0
    assert index.wait_settled(120)
    assert differences(index, root, [Query("needle_before_77"), Query("needle_after_77")]) == []


def test_where_case_does_not_matter_a_file_renamed_only_in_case_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_index: Open
) -> None:
    """On such a file system the old spelling still leads to the file: only the listing tells its name."""

    def ignoring_case(self: Disk, path: bytes) -> Numbers | None:
        folder, _, name = self.absolute(path).rpartition(b"/")
        spelled = next((entry for entry in os.listdir(folder) if entry.lower() == name.lower()), None)
        return None if spelled is None else exact(self, os.path.join(path.rpartition(b"/")[0], spelled))

    exact = Disk.numbers
    monkeypatch.setattr(Disk, "numbers", ignoring_case)
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "src/main.py").write_text("needle one\n")
    (root / "src/other.py").write_text("needle two\n")
    index = open_index(root)
    assert index.wait_settled(120)
    (root / "src/main.py").rename(root / "src/MAIN.py")
    assert by_index(index, Query("needle")) == {(b"src/MAIN.py", 1), (b"src/other.py", 1)}
    (root / "src/MAIN.py").write_text("needle three\n")
    assert by_index(index, Query("three")) == {(b"src/MAIN.py", 1)}
    assert index.compare() == 0
