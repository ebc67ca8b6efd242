"""Runs a `codehub` command that is killed (SIGKILL) right before it calls a function for the nth time.

Run as `python -m testing.codehub.killed_commands FUNCTION NTH codehub-arguments…`, where FUNCTION is `module:name` or
`module:Class.name`. The rest is the real command.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
import sys
from typing import Any

from codehub.cli.main import main


def plant(function: str, nth: int) -> None:
    module, _, path = function.partition(":")
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    right, calls = getattr(owner, name), itertools.count(1)

    @functools.wraps(right)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if next(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return right(*arguments, **named)

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    plant(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["codehub", *sys.argv[3:]]
    sys.exit(main())
