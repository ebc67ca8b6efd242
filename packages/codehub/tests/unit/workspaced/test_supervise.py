"""The supervisor of `workspaced`: a signal ends it and its child, at whatever moment it arrives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import codehub.workspaced

# A signal that arrives when the child was made and the supervisor does not know its number yet.
_SIGNAL_AFTER_FORK = """
import os, signal, sys, time
from codehub.workspaced.__main__ import supervise

fork, supervisor = os.fork, os.getpid()

def fork_and_signal():
    child = fork()
    if child:
        os.kill(supervisor, signal.SIGTERM)
    return child

def work():
    print("began", flush=True)
    time.sleep(600)

os.fork = fork_and_signal
supervise(work)
"""


def test_a_signal_that_arrives_while_the_child_is_made_ends_both() -> None:
    source = Path(codehub.workspaced.__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", _SIGNAL_AFTER_FORK],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.communicate(timeout=60)  # until the child, which has the pipe too, has ended
        assert process.returncode == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
