"""A worker process that parses: reads one request per line and answers it with lines of JSON.

Parsing holds the GIL, so the daemon never parses itself. Some texts of 64 KB take a parser half a minute (`a<b<a<b<…` in
Java), and larger ones all memory: a worker ends when a text takes too much.

A request is the path of a file, whose symbols are returned, or an object with `language` and `size`, followed by a text of
that size. With `places` it asks for the roles of the names there, otherwise for the first line with a syntax error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import astuple
from typing import Any

from sari.languages import catalog
from sari.languages.parse import MAX_PARSED_BYTES, Symbol, first_error, role_at, tree_of
from sari.languages.read import symbols_of

# About three times what dense code takes, of any language. Linear, because code is parsed in linear time.
_LEAST_CPU_S = 2.0
_BYTES_PER_CPU_S = 200_000
_MOST_DATA_BYTES = 1 << 30
# The daemon keeps the symbols of several files at a time. This is 100,000 definitions of one file.
MOST_ANSWER_BYTES = 12 << 20
_SYMBOLS_A_LINE = 2_000
# No language has longer names in practice, and an answer may contain thousands.
_LONGEST_NAME = 2_000


def main() -> None:
    root = os.fsencode(sys.argv[1])
    if "--background" in sys.argv[2:]:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(10)
    _limit_memory()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if isinstance(request, str):
            lines = _symbols(root, os.fsencode(request))
        else:
            text = sys.stdin.buffer.read(request["size"])
            _limit_time(len(text))
            lines = [json.dumps(_about(request, text))]
        # "null" is the answer for a file that cannot be parsed.
        sys.stdout.writelines(
            f"{line}\n" for line in (lines if sum(map(len, lines)) <= MOST_ANSWER_BYTES else ["null"])
        )
        sys.stdout.flush()


def _symbols(root: bytes, path: bytes) -> list[str]:
    """Return a line with the file's stamp and the number of lines that follow, and these with some symbols each: the
    reader cannot be interrupted while it decodes a line.
    """
    size = 0
    with contextlib.suppress(OSError):
        size = min(os.stat(os.path.join(root, path)).st_size, MAX_PARSED_BYTES)
    _limit_time(size)
    found = symbols_of(root, path)
    if found is None or any(_is_excessive(symbol) for symbol in found.symbols):
        return ["null"]
    rows = [astuple(symbol) for symbol in found.symbols]
    pieces = [json.dumps(rows[at : at + _SYMBOLS_A_LINE]) for at in range(0, len(rows), _SYMBOLS_A_LINE)]
    return [json.dumps([found.stamp, len(pieces)]), *pieces]


def _is_excessive(symbol: Symbol) -> bool:
    return max(len(symbol.name), len(symbol.container or ""), *map(len, symbol.supers), 0) > _LONGEST_NAME


def _about(request: dict[str, Any], text: bytes) -> object:
    language = catalog.named(request["language"])
    if language is None:
        return None
    tree = tree_of(language, text)
    if "places" in request:
        return [role_at(tree, row, start, end) for row, start, end in request["places"]]
    return [first_error(tree)]


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA_BYTES, _MOST_DATA_BYTES))


def _limit_time(size: int) -> None:
    """End this process when the next text has taken too much CPU time: a parser cannot be interrupted otherwise."""
    if os.name == "posix":
        signal.setitimer(signal.ITIMER_PROF, _LEAST_CPU_S + size / _BYTES_PER_CPU_S)


if __name__ == "__main__":
    main()
