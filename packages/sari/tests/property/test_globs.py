"""A query's globs take in exactly the files that ripgrep's `-g` does; the watcher never skips a folder with files."""

import os
import random
from pathlib import Path

from sari.index import ripgrep
from sari.index.ignore import Globs, Ignored
from testing.sari import trees

_PATHS = (
    "a.py", "b.txt", "src/a.py", "src/b.js", "src/deep/c.py", "src/deep/er/d.ts", "docs/x.md", "docs/y{z}.md",
    "tests/test_a.py", "src/tests/u.py", ".hidden/e.py", "x/src/f.py", "w [1].py", "src/A.PY", "a/b/c/d/e.py",
)  # fmt: skip
_PIECES = (
    "*",
    "**",
    "src",
    "tests",
    "*.py",
    "a",
    "deep",
    "?.py",
    "[ab].*",
    "{a,b}.*",
    "*.{py,js}",
    "d*",
    ".hidden",
    "c",
    "test_*",
)


def _tree(root: Path) -> Path:
    for path in _PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
    return root


def _glob(rng: random.Random) -> str:
    body = "/".join(rng.choice(_PIECES) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    return rng.choice(("", "", "", "!")) + rng.choice(("", "", "/")) + body


def test_globs_are_ripgreps(tmp_path: Path) -> None:
    root = _tree(tmp_path / "tree")
    rng = random.Random(5)
    everything = [os.fsdecode(path) for path in ripgrep.files(root)]
    for _ in range(120):
        globs = [_glob(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        flags = [part for glob in globs for part in ("--glob", glob)]
        theirs = {os.fsdecode(path) for path in ripgrep.files(root, [*flags, "./"])}
        mine = {path for path in everything if Globs(globs).takes(path)}
        assert mine == theirs, globs


def test_the_name_of_a_folder_means_what_is_below_it() -> None:
    folders = frozenset({"src", "src/deep", "x", "x/src"})
    assert Globs(["src"], folders).takes("src/deep/c.py")
    assert Globs(["src"], folders).takes("x/src/f.py")
    assert Globs(["./src"], folders).takes("src/a.py")
    assert not Globs(["./src"], folders).takes("x/src/f.py")
    assert Globs(["src/"], frozenset()).takes("src/a.py")
    assert not Globs(["src"], folders).takes("docs/a.py")


def test_no_folder_with_files_counts_as_ignored(tmp_path: Path) -> None:
    root = trees.hostile(tmp_path / "tree")
    ignored = Ignored(root)
    for path in ripgrep.files(root):
        folder = os.fsdecode(path).rpartition("/")[0]
        while folder:
            assert not ignored.folder(folder), path
            folder = folder.rpartition("/")[0]
    assert ignored.folder("build")
    assert ignored.folder("ignored_dir")
    assert not ignored.folder("empty/deep")
