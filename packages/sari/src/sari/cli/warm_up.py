"""`python -m sari.cli.warm_up ROOT`: opens a workspace in the daemon, for the searches after one that did not wait."""

from __future__ import annotations

import contextlib
import os
import sys

from sari.cli.search_source import warm_up
from sari.protocol.errors import SariError

if __name__ == "__main__":
    # Closing the terminal must not end it. A caller may have done this already.
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()
    # Nobody reads what it would say. The next search tries again, and `sari doctor` says why a daemon does not start.
    with contextlib.suppress(SariError, OSError):
        warm_up(sys.argv[1])
