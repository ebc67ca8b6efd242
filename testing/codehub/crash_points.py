"""`codehub` in a process of its own that kills itself at a named point: SIGKILL, or SIGSTOP until someone wakes it.

Run as `python -m testing.codehub.crash_points JSON codehub-arguments…`, where JSON is {"do": "kill" | "freeze",
"point": …, "nth": 1, "log_file": file}. The rest is the real command with the real backends. What was begun late, after a
freeze, and what it was answered, is written to the file `log_file`: one line per answer.

Points are those that the homes name (`testing.codehub.kill_chain` lists them), and:

    commit:STOPPING→NONE     a write of the control store, by the operation before and after it, right before it is sent
    signal                   an instance is asked to stop: after the last fence, before the signal
    remove                   an instance's directory is removed: after the last fence, before the first effect
    launch                   an instance is about to be launched
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
        """Whether this very call was hit, and continues late."""
        if point != self._point:
            return False
        self._left -= 1
        if self._left != 0:
            return False
        self._tell(f"hit {point}")
        # To this very thread: one sent to the process may be taken by another, while this one goes on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP if self._freezes else signal.SIGKILL)
        return True

    def answered(self, answer: object) -> None:
        self._tell(f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"{answer!r}")

    def _tell(self, line: str) -> None:
        with self._log_file.open("a") as file:
            file.write(line + "\n")


def _around(owner: Any, name: str, strike: Strike, point: Callable[..., str]) -> None:
    """Strike before the method, and tell what it was answered when that was late."""
    right = getattr(owner, name)

    async def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if not strike.at(point(*arguments)):
            return await right(self, *arguments, **named)
        # As if it had been on its way already: that the term is cancelled first cannot call it back.
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
            strike.answered(None)  # it is dead, but nobody has taken note of it yet

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
    # Three failed probes must lie this far apart: half a minute is design, and too long for a test.
    health.FAILING_FOR_S = float(given.get("failing_for_s", health.FAILING_FOR_S))  # type: ignore[misc]
    _plant(Strike(given))
    sys.argv = ["codehub", *sys.argv[2:]]
    sys.exit(main())
