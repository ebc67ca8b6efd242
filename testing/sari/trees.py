"""Trees to search: an installed Python's library, a large node_modules, a git history, and a hostile one.

Each is created in the given folder. Downloads are cached in `.parts`.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import subprocess
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_NODE_PACKAGE = "jest@29.7.0"
_GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "-c", "gc.auto=0")


def python_library(target: Path) -> Path:
    """Copy the standard library of this Python, without installed packages."""
    skip = shutil.ignore_patterns("site-packages", "__pycache__", "idle_test", "lib2to3", "*.so", "*.a")
    shutil.copytree(sysconfig.get_path("stdlib"), target, ignore=skip, symlinks=True)
    return target


def node_modules(target: Path) -> Path:
    """Create a node_modules of about 260 packages, installed once by npm."""
    kept = REPOSITORY / ".parts" / "sari-node"
    kept.mkdir(parents=True, exist_ok=True)
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / "done").exists():
            subprocess.run(
                [
                    "npm",
                    "install",
                    "--ignore-scripts",
                    "--no-audit",
                    "--no-fund",
                    "--no-package-lock",
                    "--prefix",
                    kept,
                    _NODE_PACKAGE,
                ],
                check=True,
                capture_output=True,
                timeout=300,
            )
            (kept / "done").touch()
    shutil.copytree(kept / "node_modules", target / "node_modules", symlinks=True)
    return target


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        [*_GIT, *arguments], cwd=root, check=True, capture_output=True, text=True, timeout=120
    ).stdout


def history(target: Path, seed: int, files: int = 2_000, branches: int = 4) -> list[str]:
    """Create a git repository with branches that differ in many files, and return the branch names."""
    rng = random.Random(seed)
    target.mkdir(parents=True)
    git(target, "init", "-q", "-b", "main")
    (target / ".gitignore").write_text("*.log\n/build/\n!keep.log\ntmp*/\n")
    for number in range(files):
        write_source(rng, target / f"src/p{number % 37}/m{number % 11}/f{number}.py", number)
    git(target, "add", "-A")
    git(target, "commit", "-qm", "first")
    names = ["main"]
    for number in range(1, branches):
        name = f"topic-{number}"
        git(target, "checkout", "-q", "-b", name, "main")
        for chosen in rng.sample(range(files), files // 3):
            path = target / f"src/p{chosen % 37}/m{chosen % 11}/f{chosen}.py"
            match rng.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.rename(path.with_name(f"renamed_{chosen}_{number}.py"))
                case _:
                    write_source(rng, path, chosen + 10_000 * number)
        git(target, "add", "-A")
        git(target, "commit", "-qm", name)
        names.append(name)
    git(target, "checkout", "-q", "main")
    return names


_TEXT = (
    "alpha beta gamma delta needle haystack handler request response config parser buffer stream token index "
    "segment posting watch daemon session cursor budget outline symbol Klasse café naïve Straße µ Ελλάδα"
)
_WORDS = _TEXT.split()


def write_source(rng: random.Random, path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"def unique_{number}_{rng.choice(_WORDS)}():"]
    for _ in range(rng.randrange(2, 25)):
        lines.append("    " + " ".join(rng.choices(_WORDS, k=rng.randrange(1, 9))) + f"_{rng.randrange(500)}")
    path.write_text("\n".join(lines) + rng.choice(["", "\n", "\r\n"]), encoding="utf-8")


def hostile(root: Path) -> Path:
    """Create every case that was ever handled wrongly.

    Contains encodings, NULs, names, links, ignore rules, long lines and empty files.
    """
    root.mkdir(parents=True)
    for folder in ("a/b/c", "empty/deep", "build", ".hidden", "ignored_dir", "sub/nested", "logs/x", "sp ace"):
        (root / folder).mkdir(parents=True)
    files: dict[str, bytes] = {
        "late_nul.txt": b"needle here\n" * 9000 + b"\0\n" + b"needle tail\n" * 50,
        "late_nul_long_lines.txt": (b"needle " * 12000 + b"\n") * 3 + b"\0" + b"\nneedle\n",
        "edge_nul.txt": b"needle edge\n" * 5461 + b"ab\0\nneedle after\n",
        "early_nul.bin": b"needle\n\0needle\n",
        "mid_nul.bin": b"needle line\n" * 5100 + b"\0" + b"needle\n" * 1000,
        "utf16le.txt": "\ufeffneedle in sixteen\r\nzweite Zeile Straße\n".encode("utf-16-le"),
        "utf16be.txt": "\ufeffneedle in sixteen\nsecond line\n".encode("utf-16-be"),
        "utf16nobom.txt": "needle without mark\n".encode("utf-16-le"),
        "utf16odd.txt": "\ufeffneedle odd\n".encode("utf-16-le") + b"x",
        "utf8bom.txt": "\ufeffneedle with mark\nsecond\n".encode(),
        "latin1.txt": "caf\xe9 needle Stra\xdfe\n".encode("latin-1"),
        "invalid.txt": b"\xff\xfe\xfd needle \x80\x81\nplain needle\n\xc3\x28\n",
        "kelvin.txt": "10 \u212aelvin ma\u017fs and needle\u212a\n".encode(),
        "crlf.txt": b"needle one\r\nneedle two\r\n\r\nlast needle",
        "mac.txt": b"needle one\rneedle two\r",
        "no_newline.txt": b"needle",
        "empty.txt": b"",
        "newlines.txt": b"\n\n\nneedle\n\n",
        "long_line.js": b"x" * 300_000 + b"needle" + b"y" * 300_000 + b"\nneedle\n",
        "large.txt": (b"0123456789" * 105 + b"\n") * 4_500 + b"needle in large\n",
        "-dash.txt": b"needle behind a dash\n",
        "--files": b"needle in a flag\n",
        "sp ace/na me .txt": b"needle in spaces\n",
        "trailing ": b"needle before a blank\n",
        "new\nline.txt": b"needle in a name with a newline\n",
        "gl[o]b*?{a,b}!.txt": b"needle in glob characters\n",
        "back\\slash.txt": b"needle behind a backslash\n",
        "ümläut/ß.txt": b"needle in umlauts\n",
        ".hidden/file.txt": b"needle hidden\n",
        ".env": b"NEEDLE=1\n",
        "a/b/c/deep.py": b"def needle():\n    return 1\n",
        "a/.gitignore": b"*.tmp\n!keep.tmp\n/only_here.txt\n",
        "a/x.tmp": b"needle ignored\n",
        "a/keep.tmp": b"needle kept\n",
        "a/only_here.txt": b"needle ignored at one level\n",
        "a/b/only_here.txt": b"needle not ignored below\n",
        "build/out.txt": b"needle built\n",
        "ignored_dir/x.txt": b"needle in ignored folder\n",
        "logs/x/a.log": b"needle log\n",
        "logs/x/keep.log": b"needle kept log\n",
        "sub/.ignore": b"secret*\n",
        "sub/secret.txt": b"needle secret\n",
        "sub/nested/.gitignore": b"!secret_not.txt\n",
        "sub/nested/secret_not.txt": b"needle negated below\n",
        "excluded.txt": b"needle excluded by info\n",
    }
    files[".gitignore"] = b"# comment\n/build/\nignored_dir\n*.log\n!keep.log\n\\#odd\n"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with open(os.fsencode(root) + b"/bad\xff\xe9name.txt", "wb") as out:
        out.write(b"needle in bad name\n")
    (root / "only").mkdir()
    with open(os.fsencode(root) + b"/only/late\xffnul.txt", "wb") as out:
        out.write(b"needle here\n" * 9000 + b"\0\n")
    os.symlink("a", root / "loop_a")
    os.symlink("..", root / "a/b/up")
    os.symlink("no_newline.txt", root / "link.txt")
    os.symlink("/nonexistent", root / "dangling")
    os.mkfifo(root / "fifo")
    git(root, "init", "-q")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("excluded.txt\n")
    module = root / "module"
    module.mkdir()
    git(module, "init", "-q")
    (module / ".gitignore").write_text("inner.txt\n")
    (module / "inner.txt").write_text("needle ignored in a submodule\n")
    (module / "outer.txt").write_text("needle in a submodule\n")
    return root


def generated(target: Path, files: int, seed: int = 7) -> Path:
    """Create a tree of any size from pieces of the standard library, with a unique name in each file."""
    rng = random.Random(seed)
    source: list[bytes] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source += file.read_bytes().split(b"\n")[:400]
    for number in range(files):
        folder = target / f"pkg{number % 97}" / f"mod{number // 97 % 41}"
        if number < 97 * 41:
            folder.mkdir(parents=True, exist_ok=True)
        start, length = rng.randrange(len(source) - 200), min(int(rng.expovariate(1 / 90)) + 5, 600)
        body = source[start : start + length]
        body.insert(len(body) // 2, b"def unique_%06d_fn(a): return handler_%d" % (number, number % 5000))
        (folder / f"file_{number}.py").write_bytes(b"\n".join(body))
    return target


# Where ripgrep stops in these depends on its buffer, and so on the files it read before: the oracle reads each one
# separately.
LATE_NULS = ("/late_nul.txt", "/late_nul_long_lines.txt", "/edge_nul.txt", "/mid_nul.bin", "/only/*")


def tree_bytes(root: Path) -> dict[str, bytes]:
    """Return the content of every file."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }
