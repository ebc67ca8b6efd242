"""A pytest plugin that reports at the end of a run for how many queries sari and ripgrep returned the same answer."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from testing.sari.oracle import compared

_NAME = "compared with ripgrep"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    before = compared["queries"]
    try:
        return (yield)
    finally:
        if compared["queries"] > before:
            item.user_properties.append((_NAME, compared["queries"] - before))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.getreports("passed")
    counts = [int(str(value)) for report in passed for name, value in report.user_properties if name == _NAME]
    if counts:
        terminalreporter.write_line(f"sari and ripgrep: {sum(counts)} queries in {len(counts)} tests, 0 differences")
