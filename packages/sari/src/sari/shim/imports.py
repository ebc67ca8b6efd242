"""The shim imports late, to start fast; and from one thread at a time.

Two threads importing at once can meet a module that is only half there (`dataclasses` looks at `typing` without
importing it), although Python locks each module: so whoever imports outside a module's head holds this lock.
"""

from __future__ import annotations

import threading

IMPORTING = threading.RLock()
