"""Ending daemons, and being sure of it: "ended" means that the process is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from sari.protocol.errors import SariError
from sari.registry import dial
from sari.registry.client import DaemonClient
from sari.registry.model import DaemonEntry
from sari.registry.places import Places
from sari.registry.processes import is_same_process, is_stopped
from sari.registry.store import Store

# Asked, then told, then killed: a daemon that is well needs only the first.
_ASKED_S = 15.0
_TOLD_S = 5.0
_KILLED_S = 5.0
_POLL_S = 0.02


def stop_all(places: Places) -> list[int]:
    """End every daemon of this registry, draining ones too. Returns their pids when all are gone."""
    entries = [entry for entry in Store(places).read().daemons.values() if entry.token]
    for entry in entries:
        _stop(entry)
    return [entry.pid for entry in entries]


def _stop(entry: DaemonEntry) -> None:
    asked = False
    if not is_stopped(entry.pid):
        with contextlib.suppress(OSError, SariError, dial.Answered):
            sock = dial.connect(entry.host, entry.port)
            with DaemonClient(sock) as client:
                asked = dial.identify(sock, entry.token, dial.IDENTIFY_TIMEOUT_S).boot_id == entry.boot_id
                # A successor may share its port.
                if asked:
                    client.request("sari/stop", {}, _ASKED_S)
        if asked and _gone(entry, _ASKED_S):
            return
    steps = ((signal.SIGTERM, _TOLD_S), (_KILL, _KILLED_S))
    # A stopped process hears nothing but the last.
    for number, patience_s in steps[1:] if is_stopped(entry.pid) else steps:
        if not _is_there(entry):
            return
        try:
            os.kill(entry.pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise SariError(f"the daemon (pid {entry.pid}) belongs to another user and was not ended") from error
        if _gone(entry, patience_s):
            return
    raise SariError(f"the daemon (pid {entry.pid}) could not be ended: it hangs inside the system")


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def _gone(entry: DaemonEntry, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while _is_there(entry):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _is_there(entry: DaemonEntry) -> bool:
    return is_same_process(entry.pid, entry.process_mark, entry.start_ts)
