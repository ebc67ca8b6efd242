"""The lock for late imports. The shim imports late to start fast, and from one thread at a time.

Although Python locks each module, two threads that import at once can see a half-imported module (`dataclasses`
accesses `typing` without importing it). Every import outside a module's head must therefore hold this lock.
"""

from __future__ import annotations

import threading

IMPORTING = threading.RLock()
