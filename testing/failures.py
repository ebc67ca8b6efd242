"""Writes the node ids of failed tests to a file, one per line, so that scripts/test.sh can run them again alone.

What failed and how is also appended to a `.log` beside it at once: a whole run takes half an hour.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_failed: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        # xdist appends its group to the node id.
        node = report.nodeid.rpartition("@")[0] if report.nodeid.endswith(_group(report)) else report.nodeid
        _failed[node] = None
        target = os.environ.get("PYTEST_FAILED_FILE")
        if target and "PYTEST_XDIST_WORKER" not in os.environ:
            with Path(target).with_suffix(".log").open("a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"{node} ({report.when})\n{report.longreprtext}\n\n")


def _group(report: pytest.TestReport) -> str:
    head, at, tail = report.nodeid.rpartition("@")
    return at + tail if head and "[" not in tail and "/" not in tail and "]" not in tail else "\0"


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("PYTEST_FAILED_FILE")
    if target and not hasattr(session.config, "workerinput") and _failed:
        Path(target).write_text("".join(f"{node}\n" for node in _failed))
