"""Stops daemons and waits until their processes are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from sari.protocol.errors import SariError
from sari.registry import dial
from sari.registry.client import DaemonClient
from sari.registry.layout import Layout
from sari.registry.model import DaemonEntry
from sari.registry.processes import is_same_process, is_stopped
from sari.registry.store import Store

# A stop request, then SIGTERM, then SIGKILL. A healthy daemon needs only the first.
_STOP_REQUEST_S = 15.0
_SIGTERM_S = 5.0
_SIGKILL_S = 5.0
_POLL_S = 0.02


def stop_all(layout: Layout) -> list[int]:
    """Stop every daemon in this registry, including draining ones. Returns their pids when all are gone."""
    entries = [entry for entry in Store(layout).read().daemons.values() if entry.token]
    for entry in entries:
        _stop(entry)
    return [entry.pid for entry in entries]


def _stop(entry: DaemonEntry) -> None:
    identified = False
    if not is_stopped(entry.pid):
        with contextlib.suppress(OSError, SariError, dial.Answered):
            sock = dial.connect(entry.host, entry.port)
            with DaemonClient(sock) as client:
                identified = dial.identify(sock, entry.token, dial.IDENTIFY_TIMEOUT_S).boot_id == entry.boot_id
                # A successor may share the port.
                if identified:
                    client.request("sari/stop", {}, _STOP_REQUEST_S)
        if identified and _gone(entry, _STOP_REQUEST_S):
            return
    steps = ((signal.SIGTERM, _SIGTERM_S), (_KILL, _SIGKILL_S))
    # A stopped process reacts to SIGKILL only.
    for number, timeout_s in steps[1:] if is_stopped(entry.pid) else steps:
        if not _is_there(entry):
            return
        try:
            os.kill(entry.pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise SariError(f"the daemon (pid {entry.pid}) belongs to another user and was not ended") from error
        if _gone(entry, timeout_s):
            return
    raise SariError(f"the daemon (pid {entry.pid}) could not be ended: it hangs inside the system")


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def _gone(entry: DaemonEntry, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while _is_there(entry):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _is_there(entry: DaemonEntry) -> bool:
    return is_same_process(entry.pid, entry.process_mark, entry.start_ts)
