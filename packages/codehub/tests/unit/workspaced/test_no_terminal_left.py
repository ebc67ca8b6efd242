"""What a terminal that cannot be opened answers, and that nothing of it is left."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from codehub.workspaced.errors import RequestError
from codehub.workspaced.terminals import Terminals


def test_a_machine_without_pseudo_terminals_is_reported_in_words(tmp_path: Path) -> None:
    terminals = Terminals(str(tmp_path / "terminals"), str(tmp_path), dict(os.environ))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(RequestError, match="no pseudo terminal is left"):
            terminals.start(["true"], 80, 24)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list((tmp_path / "terminals").iterdir()) == []
