"""Reads a git repository without running any program that the repository names.

`.git/config` and `.gitattributes` come with a checkout and can name programs: a file system monitor, filters, hooks, a
signature checker, transports of a promisor remote. git has no option to ignore them all, so sari runs it on a temporary
directory with an empty configuration that borrows the repository's objects, index and head. Nothing else in sari calls
git.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sari.index.regular import read_regular, read_start
from sari.index.ripgrep_process import limit_memory
from sari.registry.programs import clean_environment, find_program

_TIMEOUT_S = 20.0
_LARGEST_OUTPUT = 64 << 20
# For output that is not kept as a whole. The process's CPU time and the call's time limit it.
ANY_SIZE = 1 << 62
# Limits of one git process. Packs are mapped read-only and do not count as data.
_MOST_DATA_BYTES = 1 << 30
_MOST_CPU_S = 120
# How often a command without output checks whether its result is still needed.
_POLL_INTERVAL_S = 0.1
_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_LINE = 4_096
_LARGEST_CONFIG = 4 << 20
# A packed ref takes about 100 bytes.
_LARGEST_PACKED_REFS = 256 << 20
_REF = re.compile(r"refs/[^\0\n\\:?*\[^~ ]{1,1000}")
# Settings that affect how files are written. None can name a program; values are words and numbers only.
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
    """A repository open for reading. `prefix` is the path from its top to the workspace's root, ending with `/`.
    `is_shallow` is set if older commits are missing.
    """

    prefix: str
    head: str | None
    is_shallow: bool
    _root: Path
    _environment: dict[str, str]
    _settings: tuple[str, ...]

    def run(self, *arguments: str) -> str:
        """Run a git command and return its output as text; empty if it fails."""
        return (self.output(*arguments) or b"").decode("utf-8", "backslashreplace")

    def output(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> bytes | None:
        """Run a git command and return its output; None if it fails. It sees a detached head, no refs and no remotes."""
        deadline = time.monotonic() + timeout_s
        try:
            return b"".join(self.stream(*arguments, stopped=lambda: time.monotonic() > deadline))
        except (GitFailed, Stopped):
            return None

    def stream(
        self,
        *arguments: str,
        stopped: Callable[[], bool] = lambda: False,
        stdin: Iterable[str] = (),
        most_bytes: int = _LARGEST_OUTPUT,
    ) -> Iterator[bytes]:
        """Yield the output of a git command as it arrives, up to a size. Closing the iterator ends the process.

        Raises `GitFailed` if the command fails and `Stopped` once `stopped` returns True.
        """
        with tempfile.TemporaryFile() as given:
            given.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in stdin)
            given.seek(0)
            program = find_program("git")
            if program is None:
                raise GitFailed("git was not found on PATH or in the usual folders, outside of workspaces")
            try:
                process = subprocess.Popen(
                    [program, "--no-optional-locks", "-c", "core.quotepath=off", *self._settings, *arguments],
                    cwd=self._root,
                    env=self._environment,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise GitFailed(str(error)) from error
        _limit(process.pid)
        assert process.stdout is not None
        left = most_bytes
        try:
            while left > 0 and (chunk := _next(process.stdout.fileno(), stopped)):
                left -= len(chunk)
                yield chunk[: len(chunk) + min(0, left)]
            if left > 0 and process.wait() != 0:
                raise GitFailed(f"git {arguments[0]} ended with {process.returncode}")
        finally:
            process.kill()
            process.stdout.close()
            process.wait()


class GitFailed(Exception):
    """Raised when git could not be run or ended with an error."""


class Stopped(Exception):
    """Raised when the output is no longer needed."""


def _limit(pid: int) -> None:
    """Limit the resources of one git process, whatever the repository contains."""
    if sys.platform != "linux":
        return
    import resource

    limit_memory(pid, _MOST_DATA_BYTES)
    with contextlib.suppress(OSError):  # the process has already ended
        resource.prlimit(pid, resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))


def _next(output: int, stopped: Callable[[], bool]) -> bytes:
    if os.name == "posix":
        with selectors.PollSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not selector.select(_POLL_INTERVAL_S):
                if stopped():
                    raise Stopped
    if stopped():
        raise Stopped
    return os.read(output, 1 << 16)


def is_object_id(text: str) -> bool:
    """Whether this is the full id of an object, which git takes for nothing else."""
    return _OBJECT_ID.fullmatch(text) is not None


def read_head(root: Path) -> str | None:
    """Return the commit that is checked out, read without git; None outside a repository and before the first commit."""
    found = _find(root)
    return None if found is None else _head(found[1], found[2])


@contextlib.contextmanager
def open_repository(root: Path) -> Iterator[Repository | None]:
    """Open the repository that contains a workspace. Yields None if there is none."""
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
        is_shallow = bool(_first_line(common_dir / "shallow"))
        yield Repository(prefix, head, is_shallow, root, _environment(own, top, git_dir, common_dir), settings)


def _find(root: Path) -> tuple[Path, Path, Path] | None:
    """Return the top of the checkout, its git directory, and the directory that it shares with other worktrees."""
    for top in (root, *root.parents):
        marker = top / ".git"
        if not os.path.lexists(marker):
            continue
        git_dir = marker
        if marker.is_file():
            named = _first_line(marker).removeprefix("gitdir:").strip()
            git_dir = Path(os.path.normpath(top / named))
        git_dir = Path(os.path.realpath(git_dir))
        if not git_dir.is_dir() or not _belongs(top, git_dir):
            return None
        shared = _first_line(git_dir / "commondir").strip()
        common_dir = Path(os.path.realpath(git_dir / shared)) if shared else git_dir
        # A worktree's directory is `worktrees/NAME` in the shared one.
        if common_dir not in (git_dir, git_dir.parent.parent) or not _holds(common_dir, common_dir / "objects"):
            return None
        return top, git_dir, common_dir
    return None


def _belongs(top: Path, git_dir: Path) -> bool:
    """Whether a git directory belongs to this checkout: a `.git` file or link must not open another repository.

    A directory elsewhere (of a worktree or a submodule) names its checkout in turn.
    """
    if _holds(top, git_dir):
        return True
    back = _first_line(git_dir / "gitdir").strip()
    if back and os.path.realpath(git_dir / back) == os.path.realpath(top / ".git"):
        return True
    worktree = _config(git_dir / "config", "core.worktree").get("core.worktree")
    return worktree is not None and os.path.realpath(git_dir / worktree) == os.path.realpath(top)


def _holds(folder: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _first_line(path: Path) -> str:
    start = read_start(path, _LONGEST_LINE) or b""
    return start.partition(b"\n")[0].decode("utf-8", "surrogateescape")


def _head(git_dir: Path, common_dir: Path) -> str | None:
    """Return the commit that is checked out, from the loose or packed ref that HEAD names."""
    if not _holds(git_dir, git_dir / "HEAD"):
        # A link to another repository's HEAD would make its objects, which alternates can name, this one's history.
        return None
    name = _first_line(git_dir / "HEAD").strip()
    for _ in range(5):
        if _OBJECT_ID.fullmatch(name):
            return name
        ref = name.removeprefix("ref:").strip()
        if not _REF.fullmatch(ref) or ".." in ref:
            return None
        loose = next((one for one in (git_dir / ref, common_dir / ref) if one.is_file()), None)
        if loose is not None and not _holds(common_dir, loose):
            return None
        name = _packed(common_dir, ref) if loose is None else _first_line(loose).strip()
    return None


def _packed(common_dir: Path, ref: str) -> str:
    if not _holds(common_dir, common_dir / "packed-refs"):
        return ""
    packed = read_regular(common_dir / "packed-refs", _LARGEST_PACKED_REFS) or b""
    end = b" " + ref.encode("utf-8", "surrogateescape")
    line = next((line for line in packed.split(b"\n") if line.endswith(end)), b"")
    return line.partition(b" ")[0].decode("utf-8", "surrogateescape")


def _settings(common_dir: Path) -> tuple[tuple[str, ...], str]:
    """Return the repository's harmless settings as `-c` arguments, and its object format."""
    found = _config(common_dir / "config", *_SAFE_SETTINGS, "extensions.objectformat")
    safe = {name: value for name, value in found.items() if value is None or _SAFE_VALUE.fullmatch(value)}
    object_format = safe.pop("extensions.objectformat", "") or ""
    arguments: list[str] = []
    for name, value in safe.items():
        arguments += ["-c", name if value is None else f"{name}={value}"]
    return tuple(arguments), object_format


def _config(file: Path, *names: str) -> dict[str, str | None]:
    """Return some settings of a configuration file, without its includes; None for a name without a value."""
    wanted = "|".join(re.escape(name) for name in names)
    program = find_program("git")
    # Read here: git would wait for a pipe, and read a device without an end.
    content = read_regular(file, _LARGEST_CONFIG)
    if program is None or content is None:
        return {}
    try:
        done = subprocess.run(
            [program, "config", "--file", "-", "--no-includes", "-z", "--get-regexp", f"^({wanted})$"],
            cwd="/",
            env=_base_environment(),
            input=content,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str | None] = {}
    for entry in done.stdout.decode("utf-8", "surrogateescape").split("\0"):
        name, newline, value = entry.partition("\n")
        if name in names:
            found[name] = value if newline else None
    return found


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
        # A split index refers to its other half in a file beside it.
        **{shared.name: shared for shared in git_dir.glob("sharedindex.*")},
    }
    for name, source in borrowed.items():
        if source.is_file():
            os.symlink(source, own / name)


def _base_environment() -> dict[str, str]:
    return {
        **clean_environment(os.environ),
        "GIT_CONFIG_NOSYSTEM": "1",
        # The user's settings may define filters, which `.gitattributes` could then select.
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        # Take paths literally, whatever characters they contain.
        "GIT_LITERAL_PATHSPECS": "1",
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
