"""The page's own xterm.js in Node: what a viewer sees of some bytes. It needs no page until it is opened."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codehub.adapters.ide.xterm import XtermInstall
from testing.codehub.ide import IDE_DIR

PAGE = Path(__file__).resolve().parents[2] / "packages/codehub/src/codehub/web/static/terminal"
_SCRIPT = Path(__file__).with_name("xterm_states.mjs")

Size = tuple[int, int]
Step = bytes | Size | None  # bytes to draw, a new size, or None for the state
State = dict[str, object]


class Xterm:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def states(self, size: Size, *steps: Step) -> list[State]:
        """Return the states of a new terminal of this size."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [base64.b64encode(step).decode() if isinstance(step, bytes) else step or True for step in steps]
        self._process.stdin.write(json.dumps({"cols": size[0], "rows": size[1], "steps": words}) + "\n")
        self._process.stdin.flush()
        found: list[State] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def running_xterm() -> Iterator[Xterm]:
    files = XtermInstall(IDE_DIR).ensure()
    command = ["node", str(_SCRIPT), str(files / "xterm.mjs"), str(PAGE / "char_width.js")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Xterm(process)
    finally:
        process.kill()
        process.communicate()
