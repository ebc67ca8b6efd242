"""The interpreter that CodeHub's environment is based on. Workspaces run it, but cannot use the environment itself."""

from __future__ import annotations

import sys
from pathlib import Path


def base_python() -> Path:
    found = Path(sys.executable).resolve()
    is_copy = sys.prefix != sys.base_prefix and found.is_relative_to(Path(sys.prefix).resolve())
    return Path(sys._base_executable).resolve() if is_copy else found  # type: ignore[attr-defined]
