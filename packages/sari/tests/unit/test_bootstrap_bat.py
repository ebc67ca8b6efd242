"""bootstrap.bat cannot be run here; its shape can be checked. (What was tried with it: docs/sari/how-it-works.md.)"""

from __future__ import annotations

import re
from pathlib import Path

SCRIPT = (Path(__file__).resolve().parents[4] / "bootstrap.bat").read_bytes()
TEXT = SCRIPT.decode("ascii")


def test_its_lines_end_as_the_windows_shell_needs_them() -> None:
    assert SCRIPT.count(b"\n") == SCRIPT.count(b"\r\n") > 10
    assert SCRIPT.startswith(b"@echo off\r\n"), "no byte order mark, which would be run as a command"


def test_every_goto_has_its_label_and_nothing_stands_in_a_block() -> None:
    labels = set(re.findall(r"^:(\w+)", TEXT, re.MULTILINE))
    assert set(re.findall(r"goto (\w+)", TEXT)) == labels
    # In a block %* and %errorlevel% are read before the block runs, and a bracket in an argument ends it.
    outside_quotes = re.sub(r'"[^"]*"', "", TEXT)
    assert not re.search(r"^[^r\n]*[()]\s*\r?$", outside_quotes, re.MULTILINE)


def test_a_python_is_run_before_it_is_trusted_and_gets_every_argument() -> None:
    assert TEXT.count('%run% -c "%new_enough%"') == TEXT.count("if not errorlevel 1 goto found") == 3
    assert TEXT.rstrip().splitlines()[-1] == '%run% "%~dp0install.py" %*'
