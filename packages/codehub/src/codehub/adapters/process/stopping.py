"""Ends an instance: gracefully through its supervisor, then by force, then whatever is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from codehub.adapters.process.records import Record, is_leftover, leftovers
from codehub.adapters.process.supervisor import descendants
from codehub.domain.errors import Transient

_FIRMLY_S = 10.0
_SWEEPS = 100


async def end_tree(record: Record, grace_s: float) -> None:
    """End everything of this instance. Succeeds if it is already gone."""
    if record.alive:
        try:
            fd = os.pidfd_open(record.pid)
        except ProcessLookupError:
            fd = -1
        if fd >= 0:
            try:
                # The descriptor refers to exactly this process, so the process that is checked is the one that is
                # signalled.
                if record.alive:
                    await _end_supervisor(fd, record, grace_s)
            finally:
                os.close(fd)
    await _end_leftovers(record)


async def _end_supervisor(fd: int, record: Record, grace_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    if await _exited(fd, grace_s + _FIRMLY_S):
        return
    tree = [pid for pid, _ in descendants(record.pid)]
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    for pid in tree:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if not await _exited(fd, _FIRMLY_S):
        raise Transient(
            f"the instance of {record.workspace_id} (supervisor {record.pid}) does not end even when killed"
        )


async def _exited(fd: int, timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(fd, gone.set)
    try:
        async with asyncio.timeout(timeout_s):
            await gone.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
    return True


async def _end_leftovers(record: Record) -> None:
    for _ in range(_SWEEPS):
        left = await asyncio.to_thread(leftovers, record.identity, record.uid)
        if not left:
            return
        for pid in left:
            _kill_leftover(pid, record)
        await asyncio.sleep(0.02)
    raise Transient(f"processes of {record.workspace_id} do not end even when killed: {left[:10]}")


def _kill_leftover(pid: int, record: Record) -> None:
    """Kill a process if it is still one of this instance: it may have ended since, and another one may have its pid."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(pid)
        try:
            if is_leftover(pid, record.identity, record.uid):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
