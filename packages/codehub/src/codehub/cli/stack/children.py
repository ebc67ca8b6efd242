"""The three parts as child processes: started together, started again when one ends, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from codehub.cli.stack.backoff import Backoff

log = structlog.get_logger()

# Graceful shutdown of the proxy's WebSockets takes up to 10 s.
_STOP_PATIENCE_S = 20.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    arguments: Sequence[str]
    descriptors: Sequence[int] = ()


def _die_with_parent(parent: int) -> Callable[[], None]:
    """A child must not outlive a killed `up`: the next one starts its own."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return prepare


async def keep_running(part: Part, environment: Mapping[str, str]) -> None:
    """Run a part for ever; ends by cancellation, and then the process has ended too."""
    backoff = Backoff(asyncio.get_running_loop().time)
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "codehub.cli.main",
            *part.arguments,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=tuple(part.descriptors),
            # Ctrl-C reaches the whole group; `up` decides who stops when.
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
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
        await asyncio.wait_for(process.wait(), _STOP_PATIENCE_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
