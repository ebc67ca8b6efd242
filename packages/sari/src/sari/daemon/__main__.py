"""The daemon's process: `python -m sari.daemon OPTIONS`. Leaves its parent, says one line about how it went, and
serves.

The standard output is the starter's pipe until that line is said; nothing else is ever written to it.
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
        # The starter waits for this half, and never has a zombie.
        os._exit(0)
    pipe = _take_stdout()
    # All it writes is its owner's alone: logs and indexes hold pieces of the code.
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
            # The starter may be gone; the daemon is not its own only.
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
    except Exception:  # noqa: BLE001 - the last words go to the log the starter reads, then the process ends
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Threads of calls that were cut off must not keep the process.
        os._exit(code)
