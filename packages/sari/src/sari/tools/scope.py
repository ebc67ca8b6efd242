"""The context of every tool: one workspace's root, its index and its symbols; and how paths are shown.

Paths are bytes on disk and text in answers. Bytes that are not UTF-8 are shown as `\\xNN`, and the same form is
accepted in arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sari.index import ripgrep
from sari.index.globs import Globs, InvalidGlob
from sari.languages import catalog
from sari.tools.arguments import BadArguments, inside

if TYPE_CHECKING:
    # `sari search` answers with this module alone while no daemon is ready: what the index needs would delay it.
    from sari.index.workspace_index import WorkspaceIndex
    from sari.languages.symbol_index import SymbolIndex
    from sari.lsp.typed import TypedAnswers
    from sari.protocol.tooling import Call
    from sari.ranking.term_index import TermIndex

_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")
_VENDORED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|vendored|third_party|third-party|site-packages|bower_components|dist|build|out|target"
    r"|generated|__generated__|\.yarn|Pods)/|^deps/"
    r"|\.min\.(?:js|css)$|[._-]generated\.|_pb2(?:_grpc)?\.pyi?$|\.pb\.go$|\.g\.(?:cs|dart)$|\.map$|\.snap$"
    r"|(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Cargo\.lock|go\.sum)$"
)
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec|testdata|fixtures)/|(?:^|/)test_[^/]*$|[._-](?:test|spec)\.[^/]+$"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """One open workspace, as seen by its tools."""

    root: Path
    index: WorkspaceIndex
    symbols: SymbolIndex
    terms: TermIndex
    types: TypedAnswers

    def path(self, given: str) -> str:
        """Return the path that a caller means, relative to the root. Refuses paths that lead outside."""
        path = inside(self.root, given)
        if not os.path.lexists(self.root / path) and _ESCAPED.search(given):
            raw = _ESCAPED.sub(lambda m: chr(0xDC00 + int(m[1], 16)), given)
            return inside(self.root, raw)
        return path

    def file(self, given: str) -> bytes:
        """Return an existing file's path."""
        path = self.path(given)
        if (self.root / path).is_dir():
            raise BadArguments(f"{given} is a folder. Name a file; `find_files` lists those of a folder by `globs`.")
        if not (self.root / path).is_file():
            name = path.rpartition("/")[2]
            near = [shown(p) for p in self.index.paths() if p.rpartition(b"/")[2] == os.fsencode(name)][:3]
            hint = f"Did you mean {', '.join(near)}?" if near else "Look for it with `find_files`."
            raise BadArguments(f"There is no file {given} in {self.root}. {hint}")
        return os.fsencode(path)


def shown(path: bytes) -> str:
    """Return a path as text."""
    return path.decode("utf-8", "backslashreplace")


T = TypeVar("T")
# How many iterations of a loop may pass before it checks for cancellation.
_CANCEL_CHECK_EVERY = 512


def uncancelled(items: Iterable[T], call: Call) -> Iterator[T]:
    """Yield the items until the call is cancelled. Raises `ripgrep.Cancelled`."""
    for count, item in enumerate(items):
        if count % _CANCEL_CHECK_EVERY == 0 and call.cancelled:
            raise ripgrep.Cancelled
        yield item


def path_tier(path: str) -> int:
    """Return 0 for source, 1 for tests, 2 for vendored or generated files: the order in which matches are listed."""
    if _VENDORED.search(path):
        return 2
    return 1 if _TESTS.search(path) else 0


def path_filter(root: Path, globs: Sequence[str], languages: Sequence[str]) -> Callable[[bytes], bool] | None:
    """Return a filter for the files that a call selects; None for all."""
    wanted: set[str] = set()
    for name in languages:
        language = catalog.named(name)
        if language is None:
            known = ", ".join(one.name for one in catalog.ALL)
            raise BadArguments(
                f"`{name}` is no language sari knows. It knows {known}; use `globs` for others, e.g. *.lua."
            )
        wanted.add(language.name)
    relative = [_relative(root, glob) for glob in globs]
    try:
        taken = Globs(relative, folders=True)
    except InvalidGlob as error:
        raise BadArguments(f"{error}. `globs` are ripgrep's: `src/**`, `*.py`, `!tests/**`.") from error
    if not wanted and not taken:
        return None

    def keep(path: bytes) -> bool:
        text = os.fsdecode(path)
        if wanted:
            language = catalog.of_path(text)
            if language is None or language.name not in wanted:
                return False
        return not taken or taken.takes(text)

    return keep


def _relative(root: Path, glob: str) -> str:
    """Convert an absolute glob within the workspace to a relative one."""
    negated = glob.startswith("!")
    body = glob.removeprefix("!")
    lead = f"{root}/"
    if body.startswith(lead):
        body = "/" + body[len(lead) :]
    elif body == str(root):
        body = "**"
    return ("!" if negated else "") + body
