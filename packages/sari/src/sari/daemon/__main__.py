"""The daemon's process: `python -m sari.daemon OPTIONS`. Detaches from its parent, reports the result in one line, and
serves.

Standard output is the starter's pipe until that line is written. Nothing else is ever written to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading


def main(words: list[str]) -> int:
    """Run the daemon that the options describe."""
    content = json.loads(words[0])
    if hasattr(os, "fork") and os.fork():
        # The starter waits for this half of the fork, so no zombie is left.
        os._exit(0)
    pipe = _take_stdout()
    # All files are private to the owner: logs and indexes contain parts of the code.
    os.umask(0o077)
    if hasattr(signal, "alarm"):
        # A start that hangs must not outlive its starter.
        signal.alarm(max(1, round(float(content["start_timeout_s"]))))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lock = content.get("start_lock")
    saying = threading.Lock()

    def report(line: dict[str, object]) -> None:
        nonlocal pipe, lock
        with saying:
            if pipe is None:
                return
            # The starter may have exited. Other clients need the daemon too, so ignore the error.
            with contextlib.suppress(OSError):
                os.write(pipe, json.dumps(line).encode() + b"\n")
            os.close(pipe)
            pipe = None
            if isinstance(lock, int):
                os.close(lock)
                lock = None
            if hasattr(signal, "alarm"):
                signal.alarm(0)

    from sari.protocol.errors import SariError

    try:
        from sari.daemon.boot import StartOptions, run_daemon

        run_daemon(StartOptions.read(content), os.environ, report)
    except SariError as error:
        report({"failed": str(error)})
        return 1
    except Exception as error:
        report({"failed": f"{type(error).__name__}: {error}"})
        raise
    return 0


def _take_stdout() -> int | None:
    sys.stdout.flush()
    pipe = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.close(nothing)
    return pipe


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - the traceback goes to the log that the starter reads, then the process ends
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Threads of abandoned calls must not keep the process alive.
        os._exit(code)
