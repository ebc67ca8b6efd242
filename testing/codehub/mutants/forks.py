"""Runs pytest on a changed copy of one module, in a forked child: what does not change is imported only once.

The parent imports the libraries that the tests use, but nothing of CodeHub and no test. Each child imports those itself and
finds the changed source in the place of one module.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

# The libraries are imported before pytest can rewrite them.
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
_OURS = ("codehub", "sari", "testing", "packages", "e2e", "bench", "conftest", "test_", "__main__")
# A change may make a loop endless.
_MOST_MEMORY = 6 << 30


class _ChangedSource(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import this source as the module of this name."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<changed {self._module}>", "exec"), module.__dict__)


def preload(words: Sequence[str]) -> None:
    """Import the libraries that collecting these tests imports."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_quiet()
        pytest.main(["--collect-only", *words])
        names = [name for name in sys.modules if not name.startswith(_OURS)]
        os.write(write, json.dumps(names).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        names = json.loads(pipe.read() or b"[]")
    os.waitpid(pid, 0)
    for name in names:
        try:
            __import__(name)
        except Exception:  # the child that needs it reports why it fails
            continue


def run_changed(module: str, source: str, words: Sequence[str], longest_s: float) -> int:
    """Return pytest's exit code with the changed module. A run that takes longer counts as failed."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.setsid()
            _be_quiet()
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
            sys.dont_write_bytecode = True
            sys.meta_path.insert(0, _ChangedSource(module, source))
            code = int(pytest.main([*_QUIET, *words]))
        finally:
            os._exit(code)
    descriptor = os.pidfd_open(pid)
    try:
        if not select.select([descriptor], [], [], longest_s)[0]:
            os.killpg(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _be_quiet() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
