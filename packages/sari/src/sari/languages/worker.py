"""A worker process that parses files: reads one path per line and writes its symbols as one JSON line.

Parsing holds the GIL, so it runs in a separate process in order not to slow the daemon's answers. Some texts of 64 KB
take a parser half a minute (`a<b<a<b<…` in Java), and larger ones all memory: a worker ends when a file takes too much.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import astuple

from sari.languages.parse import MAX_PARSED_BYTES
from sari.languages.read import symbols_of

# About three times what dense code takes, of any language. Linear, because code is parsed in linear time.
_LEAST_CPU_S = 2.0
_BYTES_PER_CPU_S = 200_000
_MOST_DATA_BYTES = 1 << 30


def main() -> None:
    root = os.fsencode(sys.argv[1])
    if "--background" in sys.argv[2:]:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(10)
    _limit_memory()
    for line in sys.stdin.buffer:
        path = os.fsencode(json.loads(line))
        _limit_time(root, path)
        found = symbols_of(root, path)
        answer = None if found is None else [found.stamp, [astuple(symbol) for symbol in found.symbols]]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA_BYTES, _MOST_DATA_BYTES))


def _limit_time(root: bytes, path: bytes) -> None:
    """End this process when the next file has taken too much CPU time: a parser cannot be interrupted otherwise."""
    if os.name == "posix":
        size = 0
        with contextlib.suppress(OSError):
            size = min(os.stat(os.path.join(root, path)).st_size, MAX_PARSED_BYTES)
        signal.setitimer(signal.ITIMER_PROF, _LEAST_CPU_S + size / _BYTES_PER_CPU_S)


if __name__ == "__main__":
    main()
