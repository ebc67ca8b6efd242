"""The test cluster's scripts: a program counts as ended only when nothing of it runs any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RESTART = Path(__file__).parents[4] / "scripts/kubernetes/restart.sh"
# Its main thread has ended, so that it is a zombie. Another thread holds its resources for a while after SIGTERM.
_WITHOUT_MAIN_THREAD = """
import ctypes, os, pathlib, signal, sys, threading, time

def hold():
    while open("/proc/self/status").read().find("State:\\tZ") < 0:
        time.sleep(0.001)
    print("zombie", flush=True)
    signal.sigwait([signal.SIGTERM])
    time.sleep(1)
    pathlib.Path(sys.argv[1]).touch()
    os._exit(0)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Thread(target=hold).start()
exit_call = 60 if os.uname().machine == "x86_64" else 93
ctypes.CDLL(None).syscall(exit_call, 0)  # exit(2): ends this thread alone
"""


def _restart(lab: Path, action: str) -> int:
    done = subprocess.run(
        ["/bin/bash", str(_RESTART), action, "program"],
        env={"PATH": "/usr/bin:/bin", "CODEHUB_KUBERNETES_LAB": str(lab)},
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode


@pytest.mark.skipif(sys.platform != "linux", reason="zombies as /proc shows them")
def test_a_program_that_is_stopped_has_let_go_of_everything(tmp_path: Path) -> None:
    released = tmp_path / "released"
    (tmp_path / "run/pid").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_MAIN_THREAD, str(released)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        (tmp_path / "run/pid/program").write_text(str(program.pid))
        assert program.stdout.readline() == "zombie\n"
        assert _restart(tmp_path, "ended") == 1
        assert _restart(tmp_path, "stop") == 0
        assert released.exists()
        assert _restart(tmp_path, "ended") == 0, "not reaped yet, but ended"
