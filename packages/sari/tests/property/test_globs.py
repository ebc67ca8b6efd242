"""A query's globs take in exactly the files that ripgrep's `-g` does; the watcher never skips a folder with files."""

import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sari.index import ripgrep
from sari.index.globs import Globs, InvalidGlob, compile_pattern
from sari.index.ignore import Ignored
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
    "*s*",
    "*/**/*.py",
    "{src,x/{src,y}}",
    "[!s]*",
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
    for _ in range(200):
        globs = [_glob(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        flags = [part for glob in globs for part in ("--glob", glob)]
        theirs = {os.fsdecode(path) for path in ripgrep.files(root, [*flags, "./"])}
        mine = {path for path in everything if Globs(globs).takes(path)}
        assert mine == theirs, globs


def test_the_name_of_a_folder_means_what_is_below_it() -> None:
    assert Globs(["src"], folders=True).takes("src/deep/c.py")
    assert Globs(["src"], folders=True).takes("x/src/f.py")
    assert Globs(["src"], folders=True).takes("docs/src")
    assert Globs(["src/deep"], folders=True).takes("src/deep/c.py")
    assert not Globs(["src/deep"], folders=True).takes("x/src/deep/c.py")
    assert Globs(["./src"], folders=True).takes("src/a.py")
    assert not Globs(["./src"], folders=True).takes("x/src/f.py")
    assert Globs(["src/"], folders=True).takes("src/a.py")
    assert not Globs(["src"], folders=True).takes("docs/a.py")


@pytest.mark.parametrize("glob", ["{a", "a}", "[a", "a\\", "{a,[b}"])
def test_a_glob_that_ripgrep_refuses_is_refused_and_drops_no_filter(glob: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidGlob):
        Globs([glob])
    with pytest.raises(ripgrep.RipgrepFailed):
        ripgrep.files(tmp_path, ["--glob", glob, "./"])


def test_alternatives_are_bounded() -> None:
    with pytest.raises(InvalidGlob, match="alternatives"):
        Globs(["{a,b}" * 40])


# Backtracking would need longer than the universe for these; the test's own timeout is what would fail.
@pytest.mark.parametrize(
    "glob", ["*a" * 60 + "*b", "**/*a*/" * 20 + "b", "{" + ",".join(["*a" * 30 + "*b"] * 20) + "}", "?*" * 100 + "b"]
)
def test_a_hostile_glob_takes_linear_time(glob: str) -> None:
    globs = Globs([glob])
    assert not globs.takes("a" * 255)
    assert not globs.takes("/".join(["a" * 60] * 40))


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**", "?", "[ab]", "[!a]", "{a,*b}", "/", "/**/", ".*"]), max_size=7),
    st.text("ab./", min_size=1, max_size=14),
)
def test_atomic_matching_finds_what_backtracking_finds(pieces: list[str], path: str) -> None:
    glob, path = "".join(pieces).strip("/"), re.sub("/+", "/", path).strip("/")
    assume(glob and path and "//" not in glob)
    pattern = compile_pattern("/" + glob)
    assert pattern is not None
    by_atoms = pattern.regex.fullmatch(path) is not None
    assert by_atoms == (re.fullmatch(pattern.regex.pattern.replace("(?>", "(?:"), path, re.DOTALL) is not None)


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
