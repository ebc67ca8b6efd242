"""Writes the `sari` command of an environment: a shell script that starts ripgrep or Python.

pip's script imports too much, and a client's PYTHONPATH must not affect sari. `launcher.sh` says what the shell does.
"""

from __future__ import annotations

import shlex
import sysconfig
from pathlib import Path

import sari
from sari.index.ripgrep_process import PROGRAM

_TEMPLATE = Path(__file__).with_name("launcher.sh")


def program_text(environment: Path, python: Path) -> str:
    """Return the script. It runs the version that runs this."""
    words = {"PYTHON": str(python), "RIPGREP": PROGRAM}
    # The shell's part is a string for Python, which must neither end early nor contain escapes.
    if any(mark in word for word in words.values() for mark in "'\\\n"):
        return _python_alone(python)
    folders = [str(Path(sari.__file__).parent.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    text = _TEMPLATE.read_text("utf-8")
    for name, word in words.items():
        text = text.replace(f"@{name}@", shlex.quote(word))
    text = text.replace("@ENVIRONMENT@", repr(str(environment)))
    return text.replace("@PACKAGES@", repr(list(dict.fromkeys(folders))))


def _python_alone(python: Path) -> str:
    head = f"#!{python} -EPs\n"
    if " " in str(python) or len(head) > 127:
        # The kernel accepts neither spaces nor a long path in a shebang: a shell reads the first lines, Python the
        # rest.
        head = f"#!/bin/sh\n'''exec' \"{python}\" -EPs \"$0\" \"$@\"\n' '''\n"
    return f"{head}import sys\n\nfrom sari.cli.main import main\n\nsys.exit(main())\n"
