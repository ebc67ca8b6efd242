"""The three parts as child processes: started together, restarted if one ends, stopped together.

If CodeHub runs as root, API and proxy run as CodeHub's system user. Only the coordinator runs as root, in that user's
group.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from codehub.adapters.embedded.account import Account, barrier
from codehub.adapters.process.isolation import command_line
from codehub.adapters.process.sandbox import tool_dirs
from codehub.cli.stack.backoff import Backoff
from codehub.cli.stack.unprivileged import plan_for

log = structlog.get_logger()

# Graceful shutdown of the proxy's WebSockets takes up to 10 s.
_STOP_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1
_SOURCES = Path(__file__).parents[3]
_UMASK = 0o022


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    arguments: Sequence[str]
    descriptors: Sequence[int] = ()
    # Whether it stays root if CodeHub is: it starts each workspace as another user.
    privileged: bool = False


def command_of(part: Part, account: Account | None) -> list[str]:
    """Return the command of a part. It runs as `account` if that is another user and the part need not be root."""
    command = [sys.executable, "-m", "codehub.cli.main", *part.arguments]
    if account is None or not account.switched or part.privileged:
        return command
    trees = [*tool_dirs(), Path(sys.prefix).absolute(), _SOURCES]
    closed = {str(found) for tree in trees if (found := barrier(tree, account)) is not None}
    plan = plan_for(account.uid, account.gid, sorted(closed), sorted({*map(str, trees)}, key=len), os.getpid())
    return command_line("codehub.cli.stack.unprivileged:main", plan, *command)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Kill a child if this command is killed: when it is repeated, it starts its own children."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return prepare


async def keep_running(part: Part, environment: Mapping[str, str], account: Account | None = None) -> None:
    """Keep a part running until cancelled. The process has then ended too."""
    backoff = Backoff(asyncio.get_running_loop().time)
    while True:
        process = await asyncio.create_subprocess_exec(
            *command_of(part, account),
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=tuple(part.descriptors),
            # Ctrl-C reaches the whole group; `up` decides the order of stopping.
            start_new_session=True,
            umask=_UMASK,
            # This group owns records and sockets of workspaces, so that API and proxy can access them.
            group=account.group if account is not None and part.privileged else None,
            preexec_fn=die_with_parent(os.getpid()),
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await asyncio.shield(_stop(process))
            raise
        after_s = backoff.ended()
        log.error("a part ended and is started again", part=part.name, code=code, after_s=after_s)
        await asyncio.sleep(after_s)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
