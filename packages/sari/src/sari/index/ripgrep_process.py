"""Starts ripgrep and reads its output. Nothing else in sari starts it.

`sari search` starts it here before it loads the code that shows the lines, so what this imports delays the first
answer: no `dataclasses`, `pathlib`, `sysconfig`, `tempfile`. Uses the same flags as a user's `rg --hidden` on the tree,
so that ripgrep itself is the test oracle.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class RipgrepFailed(Exception):
    """Raised when ripgrep rejected the query (an invalid regex or glob) or could not run. Contains ripgrep's message."""


class RipgrepDied(RipgrepFailed):
    """Raised when ripgrep was killed or could not be started, so that its output is not complete."""


class Cancelled(Exception):
    """Raised when the client no longer needs the answer."""


def _find_program() -> str:
    name = "rg.exe" if os.name == "nt" else "rg"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if sys.prefix != sys.base_prefix and os.access(beside, os.X_OK):
        return beside
    import sysconfig

    from sari.registry.programs import find_program

    # Resolved once, at import: the first call of sysconfig.get_path is not thread-safe.
    scripts = os.path.join(sysconfig.get_path("scripts") or "", name)
    installed = next((path for path in (scripts, beside) if os.access(path, os.X_OK)), None)
    # Never a mere name, which would be looked up again, perhaps in the workspace.
    return installed or find_program(name) or beside


PROGRAM = _find_program()

# Common to every run: no user configuration; hidden files, but never a repository's own data.
BASE = ("--no-config", "--hidden", "--glob", "!.git", "--color", "never")

# NUL between the fields: if a field is missing, a colon could be part of the text.
LINES = (
    "--null", "--line-number", "--column", "--no-heading", "--with-filename", "--field-match-separator", r"\x00",
)  # fmt: skip

_MODES = {"literal": ("--fixed-strings",), "words": ("--fixed-strings", "--word-regexp"), "regex": ()}
_CASES = {"smart": "--smart-case", "sensitive": "--case-sensitive", "insensitive": "--ignore-case"}
# Patterns that may match a newline. Other escapes are matched too, so that an escaped backslash before an n does not
# count.
_NEWLINE_OR_ESCAPE = r"(?s)\\(?:n|x0[aA]|x\{0*[aA]\}|u000[aA]|u\{0*[aA]\})|(?P<other>\\.)|\n|\(\?[a-zA-Z]*s"

# Folders of installed dependencies.
_DEPENDENCIES = frozenset({"site-packages", "dist-packages", "node_modules"})

# How often a search without output checks whether it is still needed.
_POLL_INTERVAL_S = 0.2

# ripgrep reads ignore files of any size, and what they are linked to. It doubles a buffer that is full, so it uses half of
# this at most.
_MOST_DATA_BYTES = 2 << 30

_ABOUT_THE_QUERY = r"(?m)regex parse error|error parsing glob|is not allowed in a regex|^error: |exceeds size limit"


def spans_lines(text: str, mode: str) -> bool:
    """Return whether a query may match a newline."""
    if mode != "regex":
        return "\n" in text
    return any(found["other"] is None for found in re.finditer(_NEWLINE_OR_ESCAPE, text))


def pattern(text: str, mode: str, case: str) -> list[str]:
    """Return the flags for a query. `case` is smart, sensitive or insensitive; `mode` literal, regex or words."""
    several = ["--multiline"] if spans_lines(text, mode) else []
    return [*_MODES[mode], _CASES[case], *several, "--regexp", text]


def whole_tree(text: str, mode: str, case: str) -> list[str]:
    """Return the arguments to find the lines that match a query in all files."""
    return [*pattern(text, mode, case), *LINES, "./"]


class Ripgrep:
    """One running ripgrep. Raises `RipgrepFailed` if it cannot be started."""

    def __init__(self, arguments: Sequence[str | bytes], root: str) -> None:
        self.arguments = list(arguments)
        self._root = root
        try:
            self._messages = _unnamed_file()
            try:
                self._process = subprocess.Popen(
                    [PROGRAM, *BASE, *_ignore_flags(root), *arguments],
                    cwd=root,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=self._messages,
                    bufsize=0,
                )
            except BaseException:
                os.close(self._messages)
                raise
        except OSError as error:
            raise _cannot_run(root, error) from error
        limit_memory(self._process.pid, _MOST_DATA_BYTES)

    def output(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
        """Yield the output as it arrives, and end ripgrep. Missing or unreadable files are ignored; an invalid pattern
        raises.
        """
        assert self._process.stdout is not None
        try:
            while chunk := _next(self._process.stdout.fileno(), cancelled):
                yield chunk
            if self._process.wait() < 0:
                raise RipgrepDied(
                    f"ripgrep was ended by signal {-self._process.returncode} in {self._root}, so there is no complete "
                    "answer. Did it run out of memory, or is an ignore file a link to a device?"
                )
            if self._process.returncode == 2:
                messages = os.pread(self._messages, 20_000, 0).decode("utf-8", "replace").strip()
                if re.search(_ABOUT_THE_QUERY, messages):
                    raise RipgrepFailed(messages)
        except OSError as error:
            raise _cannot_run(self._root, error) from error
        finally:
            self.end()

    def end(self) -> None:
        """End it if it still runs. May be called again."""
        if self._messages < 0:
            return
        self._process.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()
        os.close(self._messages)
        self._messages = -1


def limit_memory(pid: int, most_bytes: int) -> None:
    """Limit the memory that a child process may use, except for files that it maps."""
    if sys.platform != "linux":
        return
    import resource

    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (most_bytes, most_bytes))
    except OSError:
        # It has already ended.
        return


def _unnamed_file() -> int:
    """Open a file for messages, which must not block ripgrep as a full pipe would."""
    if hasattr(os, "memfd_create"):
        # In memory: a full disk must not prevent a search.
        return os.memfd_create("ripgrep")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _cannot_run(root: str, error: OSError) -> RipgrepFailed:
    if os.path.isdir(root):
        # Too many open files or processes, or ripgrep is missing: the tree's files are still there.
        return RipgrepDied(f"ripgrep cannot be run in {root}: {error}")
    return RipgrepFailed(f"ripgrep cannot be run in {root}: {error}. Is the folder still there?")


def _ignore_flags(root: str) -> tuple[str, ...]:
    """Search the sources of an installed dependency even if the project around them ignores them."""
    parts = root.replace(os.sep, "/").split("/")
    return ("--no-ignore-parent",) if not _DEPENDENCIES.isdisjoint(parts) or "pkg/mod" in "/".join(parts) else ()


def _next(output: int, cancelled: Callable[[], bool]) -> bytes:
    """Return the next piece of output. Also checks for cancellation while there is none."""
    if os.name == "posix":
        # Not `select`, which knows no descriptor above 1023.
        waiting = select.poll()
        waiting.register(output, select.POLLIN)
        while not waiting.poll(_POLL_INTERVAL_S * 1000):
            if cancelled():
                raise Cancelled
    chunk = os.read(output, 1 << 18)
    if cancelled():
        raise Cancelled
    return chunk
