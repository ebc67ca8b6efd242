"""A pytest plugin: records which tests run which lines of `codehub/domain`, as JSON in the file $MUTANTS_LINES.

A line that runs when its module is imported (a table, a constant) belongs to no test; every test of that file counts for
it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_SEEN: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
_PART = "/codehub/domain/"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    lines: dict[str, set[int]] = defaultdict(set)
    names: dict[str, str] = {}

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        lines[names[frame.f_code.co_filename]].add(frame.f_lineno)
        return trace_line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if _PART not in path:
            return None
        names.setdefault(path, path.partition(_PART)[2])
        lines[names[path]].add(frame.f_lineno)
        return trace_line

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        for file, numbers in lines.items():
            _SEEN[file][item.nodeid] |= numbers


def pytest_sessionfinish() -> None:
    found = {file: {test: sorted(numbers) for test, numbers in tests.items()} for file, tests in _SEEN.items()}
    Path(os.environ["MUTANTS_LINES"]).write_text(json.dumps(found), encoding="utf-8")
