"""Reads a git repository without running anything that the repository names.

`.git/config` and `.gitattributes` come with a checkout and can name programs: a file system monitor, filters, hooks, a
signature checker, transports of a promisor remote. git has no option to ignore them all, so it is run on a directory of
our own, with an empty configuration, that borrows the repository's objects, index and head. Nothing else in sari calls
git.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 20.0
_LARGEST_OUTPUT = 64 << 20
_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\0\n\\:?*\[^~ ]{1,1000}")
# Settings about how files are written, none of which can name a program. Values are words and numbers only.
_SAFE_SETTINGS = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
)
_SAFE_VALUE = re.compile(r"[a-zA-Z0-9]{0,20}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that is open for reading. `prefix` leads from its top to the workspace's root, with `/` at its end."""

    prefix: str
    head: str | None
    _root: Path
    _environment: dict[str, str]
    _settings: tuple[str, ...]

    def run(self, *arguments: str) -> str:
        """What a git command prints, as text; nothing when it fails."""
        return (self.output(*arguments) or b"").decode("utf-8", "backslashreplace")

    def output(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> bytes | None:
        """What a git command prints; None when it fails. It sees the head as a detached one, no refs, no remotes."""
        try:
            done = subprocess.run(
                ["git", "--no-optional-locks", "-c", "core.quotepath=off", *self._settings, *arguments],
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=timeout_s,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout[:_LARGEST_OUTPUT] if done.returncode == 0 else None


def read_head(root: Path) -> str | None:
    """The commit that is checked out, read without git; None outside a repository and before the first commit."""
    found = _find(root)
    return None if found is None else _head(found[1], found[2])


@contextlib.contextmanager
def open_repository(root: Path) -> Iterator[Repository | None]:
    """The repository that a workspace is in, for as long as the block runs; None where there is none."""
    found = _find(root)
    if found is None:
        yield None
        return
    top, git_dir, common_dir = found
    with tempfile.TemporaryDirectory(prefix="sari-git-") as own:
        head = _head(git_dir, common_dir)
        settings, object_format = _settings(common_dir)
        _prepare(Path(own), git_dir, common_dir, head, object_format)
        prefix = "" if root == top else f"{root.relative_to(top).as_posix()}/"
        yield Repository(prefix, head, root, _environment(own, top, git_dir, common_dir), settings)


def _find(root: Path) -> tuple[Path, Path, Path] | None:
    """The top of the checkout, its git directory, and the one that it shares with other worktrees."""
    for top in (root, *root.parents):
        marker = top / ".git"
        if not os.path.lexists(marker):
            continue
        git_dir = marker
        if marker.is_file():
            named = _first_line(marker).removeprefix("gitdir:").strip()
            git_dir = Path(os.path.normpath(top / named))
        if not git_dir.is_dir():
            return None
        shared = _first_line(git_dir / "commondir").strip()
        return top, git_dir, Path(os.path.normpath(git_dir / shared)) if shared else git_dir
    return None


def _first_line(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline(4096)
    except OSError:
        return ""


def _head(git_dir: Path, common_dir: Path) -> str | None:
    """The commit that is checked out, by the loose or packed ref that HEAD names."""
    name = _first_line(git_dir / "HEAD").strip()
    for _ in range(5):
        if _OBJECT_ID.fullmatch(name):
            return name
        ref = name.removeprefix("ref:").strip()
        if not _REF.fullmatch(ref) or ".." in ref:
            return None
        name = _first_line(git_dir / ref).strip() or _first_line(common_dir / ref).strip() or _packed(common_dir, ref)
    return None


def _packed(common_dir: Path, ref: str) -> str:
    try:
        with open(common_dir / "packed-refs", encoding="utf-8", errors="surrogateescape") as file:
            return next((line.partition(" ")[0] for line in file if line.rstrip("\n").endswith(f" {ref}")), "")
    except OSError:
        return ""


def _settings(common_dir: Path) -> tuple[tuple[str, ...], str]:
    """The harmless settings of the repository as `-c` arguments, and its object format."""
    wanted = "|".join(re.escape(name) for name in (*_SAFE_SETTINGS, "extensions.objectformat"))
    try:
        done = subprocess.run(
            [
                "git",
                "config",
                "--file",
                str(common_dir / "config"),
                "--no-includes",
                "-z",
                "--get-regexp",
                f"^({wanted})$",
            ],
            cwd="/",
            env=_base_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (), ""
    arguments: list[str] = []
    object_format = ""
    for entry in done.stdout.decode("utf-8", "replace").split("\0"):
        name, _, value = entry.partition("\n")
        if not _SAFE_VALUE.fullmatch(value):
            continue
        if name == "extensions.objectformat":
            object_format = value
        elif name in _SAFE_SETTINGS:
            arguments += ["-c", f"{name}={value}" if "\n" in entry else name]
    return tuple(arguments), object_format


def _prepare(own: Path, git_dir: Path, common_dir: Path, head: str | None, object_format: str) -> None:
    config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    if object_format:
        config = (
            f"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {object_format}\n"
        )
    (own / "config").write_text(config)
    (own / "HEAD").write_text(f"{head}\n" if head else "ref: refs/heads/none\n")
    for folder in ("objects", "refs", "info"):
        (own / folder).mkdir()
    borrowed = {
        "shallow": common_dir / "shallow",
        "info/exclude": common_dir / "info/exclude",
        "info/sparse-checkout": git_dir / "info/sparse-checkout",
        # A split index names its other half by a file beside it.
        **{shared.name: shared for shared in git_dir.glob("sharedindex.*")},
    }
    for name, source in borrowed.items():
        if source.is_file():
            os.symlink(source, own / name)


def _base_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        # The user's own settings may name filters, which `.gitattributes` would then choose from.
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def _environment(own: str, top: Path, git_dir: Path, common_dir: Path) -> dict[str, str]:
    return {
        **_base_environment(),
        "GIT_DIR": own,
        "GIT_WORK_TREE": str(top),
        "GIT_INDEX_FILE": str(git_dir / "index"),
        "GIT_OBJECT_DIRECTORY": str(common_dir / "objects"),
    }
