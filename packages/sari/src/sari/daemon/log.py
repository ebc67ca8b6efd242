"""The daemon's log: one rotated file per daemon beside the registry, never stdout. Messages are constant; values are
fields.
"""

from __future__ import annotations

import contextlib
import logging
import os
from logging.handlers import RotatingFileHandler

_LARGEST_FILE = 1 << 20
_KEPT_DAEMONS = 5

logger = logging.getLogger("sari.daemon")


def open_log(log_dir: str, boot_id: str) -> str:
    """Open this daemon's log file and delete the logs of old daemons. Returns the file's path."""
    path = os.path.join(log_dir, f"daemon-{boot_id}.log")
    handler = RotatingFileHandler(path, maxBytes=_LARGEST_FILE, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    # A full disk must not fill stderr as well.
    logging.raiseExceptions = False
    _drop_old(log_dir)
    return path


def fields(**values: object) -> str:
    """Format values to append to a constant message."""
    return " ".join(f"{name}={value!r}" for name, value in values.items())


def _drop_old(log_dir: str) -> None:
    with contextlib.suppress(OSError):
        paths = [os.path.join(log_dir, name) for name in os.listdir(log_dir) if name.startswith("daemon-")]
        logs = sorted((path for path in paths if ".log" in path and "stderr" not in path), key=os.path.getmtime)
        for path in logs[: -2 * _KEPT_DAEMONS]:
            os.unlink(path)
