"""What every part has in common: its settings, an inherited socket, and running until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from codehub.cli import logs
from codehub.cli.effective_settings import effective_settings
from codehub.cli.stack.rights import raise_open_files
from codehub.settings import Settings

FD_HELP: Final = "Serve on this inherited listening socket."


def part_settings() -> Settings:
    raise_open_files()
    state = effective_settings(os.environ)
    state.require_database()
    logs.configure(state.settings.log_level, state.settings.log_format)
    return state.settings


def inherited(fd: int | None) -> socket.socket | None:
    return None if fd is None else socket.socket(fileno=fd)


def run_part(
    part: Coroutine[Any, Any, None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Run a part. SIGTERM and SIGINT cancel it, which is a clean exit."""

    async def until_signalled() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        await part

    with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(until_signalled())
