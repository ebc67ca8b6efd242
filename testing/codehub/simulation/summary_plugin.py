"""Reports at the end of a test run how much was simulated, and which seed found which planted bug."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    properties = [entry for report in passed if report.when == "call" for entry in report.user_properties]
    simulated = [value for name, value in properties if name == "simulated"]
    if simulated:
        seeds, steps, faults = (sum(column) for column in zip(*simulated, strict=True))
        terminalreporter.write_line(f"simulated: {seeds} seeds, {steps} steps, {faults} faults")
    for name, value in properties:
        if name == "planted":
            terminalreporter.write_line(f"planted and found: {value}")
