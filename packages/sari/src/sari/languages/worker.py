"""A worker process that parses files: reads one path per line and writes its symbols as one JSON line.

Parsing holds the GIL, so it runs in a separate process in order not to slow the daemon's answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import astuple

from sari.languages.read import symbols_of


def main() -> None:
    root = os.fsencode(sys.argv[1])
    if "--background" in sys.argv[2:]:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(10)
    for line in sys.stdin.buffer:
        found = symbols_of(root, os.fsencode(json.loads(line)))
        answer = None if found is None else [found.stamp, [astuple(symbol) for symbol in found.symbols]]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
