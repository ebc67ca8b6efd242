"""Ends an instance: gracefully through its supervisor, then by force, then whatever is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from codehub.adapters.process.records import Record, is_leftover, leftovers
from codehub.adapters.process.supervisor import descendants
from codehub.domain.errors import Transient
from codehub.ports.fence import Fence

_FIRMLY_S = 10.0
_SWEEPS = 100
_KILLED_AT_ONCE = 100  # each needs a descriptor


async def end_tree(record: Record, grace_s: float, fence: Fence) -> None:
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
                    await _end_supervisor(fd, record, grace_s, fence)
            finally:
                os.close(fd)
    await _end_leftovers(record, fence)


async def _end_supervisor(fd: int, record: Record, grace_s: float, fence: Fence) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    if await _exited(fd, grace_s + _FIRMLY_S):
        return
    fence()
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


async def _end_leftovers(record: Record, fence: Fence) -> None:
    for _ in range(_SWEEPS):
        left = await asyncio.to_thread(leftovers, record.identity, record.uid)
        if not left:
            return
        for begin in range(0, len(left), _KILLED_AT_ONCE):
            _kill_leftovers(left[begin : begin + _KILLED_AT_ONCE], record, fence)
        await asyncio.sleep(0.02)
    raise Transient(f"processes of {record.workspace_id} do not end even when killed: {left[:10]}")


def _kill_leftovers(pids: Sequence[int], record: Record, fence: Fence) -> None:
    """Kill processes if they are still of this instance: they may have ended since, and others may have their pids.

    The workspace's next start has the same uid, and a leader that was frozen must not end it. So the processes are held
    first: if the term is not over then, they are not of a start by a later leader.
    """
    with contextlib.ExitStack() as opened:
        held = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                opened.callback(os.close, fd)
                if is_leftover(pid, record.identity, record.uid):
                    held.append(fd)
        fence()
        for fd in held:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
