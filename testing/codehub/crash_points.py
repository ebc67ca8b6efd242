"""Runs `codehub` in a separate process that kills itself at a named point: SIGKILL, or SIGSTOP until it is resumed.

Run as `python -m testing.codehub.crash_points JSON codehub-arguments…`, where JSON is {"do": "kill" | "freeze", "point": …,
"nth": 1, "log_file": file}. The rest is the real command with the real backends. Calls that were made late, after a freeze,
write their answers to the file `log_file`, one per line.

Points are those that the homes name (`testing.codehub.kill_chain` lists them), and:

    commit:STOPPING→NONE     a write of the control store, by the operation before and after it, right before it is sent
    signal                   stopping an instance: after the last fence check, before the signal
    remove                   removing an instance's directory: after the last fence check, before the first effect
    launch                   right before an instance is launched
    create:pods, delete:pods a request to the Kubernetes API server, by its resource, right before it is sent
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codehub.adapters.homes.docker_volume import DockerVolumeHomes
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.homes import PvcHomes
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.layout import RunLayout
from codehub.cli.main import main
from codehub.control import health


class Strike:
    def __init__(self, job: dict[str, Any]) -> None:
        self._freezes = job["do"] == "freeze"
        self._point = job["point"]
        self._left = int(job.get("nth", 1))
        self._log_file = Path(job["log_file"])

    def at(self, point: str) -> bool:
        """Return whether this call was hit and continues late."""
        if point != self._point:
            return False
        self._left -= 1
        if self._left != 0:
            return False
        self._tell(f"hit {point}")
        # Sent to this thread: another thread may handle a signal sent to the process, while this one continues for a
        # moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP if self._freezes else signal.SIGKILL)
        return True

    def answered(self, answer: object) -> None:
        self._tell(f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"{answer!r}")

    def _tell(self, line: str) -> None:
        with self._log_file.open("a") as file:
            file.write(line + "\n")


def _around(owner: Any, name: str, strike: Strike, point: Callable[..., str]) -> None:
    """Strike before the method, and record its answer if it was late."""
    right = getattr(owner, name)

    async def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if not strike.at(point(*arguments)):
            return await right(self, *arguments, **named)
        # As if the request had already been sent: cancelling the term first cannot stop it.
        late = asyncio.ensure_future(right(self, *arguments, **named))
        late.add_done_callback(lambda done: strike.answered(done.exception() or done.result()))
        return await asyncio.shield(late)

    setattr(owner, name, wrapped)


def _plant(strike: Strike) -> None:
    def at_home(point: str) -> None:
        strike.at(point)

    for homes in (LocalDirHomes, DockerVolumeHomes, PvcHomes):
        defaults = homes.__init__.__kwdefaults__
        assert defaults is not None
        defaults["at"] = at_home
    _around(
        PostgresControlStore,
        "commit",
        strike,
        lambda epoch, change, now: f"commit:{change.before.operation}→{change.after.operation}",
    )
    _around(ApiClient, "create", strike, lambda path, body: f"create:{path.rpartition('/')[2]}")
    _around(ApiClient, "delete", strike, lambda path, *_: f"delete:{path.split('/')[-2]}")
    _around(ProcessInstances, "_launch", strike, lambda *_: "launch")
    send, remove = signal.pidfd_send_signal, RunLayout.remove

    def late_signal(fd: int, number: int) -> None:
        late = strike.at("signal")
        try:
            send(fd, number)
        except ProcessLookupError as error:
            if late:
                strike.answered(error)
            raise
        if late:
            strike.answered(None)  # it is dead, but that was not noticed yet

    def late_remove(self: RunLayout, workspace_id: str, identity: str) -> None:
        late = strike.at("remove")
        try:
            remove(self, workspace_id, identity)
        except Exception as error:
            if late:
                strike.answered(error)
            raise

    signal.pidfd_send_signal = late_signal  # type: ignore[assignment]
    RunLayout.remove = late_remove  # type: ignore[method-assign]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    # The minimum time between three failed probes. The default of half a minute is too long for a test.
    health.FAILING_FOR_S = float(given.get("failing_for_s", health.FAILING_FOR_S))  # type: ignore[misc]
    _plant(Strike(given))
    sys.argv = ["codehub", *sys.argv[2:]]
    sys.exit(main())
