"""Runs a complete real CodeHub with random user actions and random crashes: no acknowledged write may be lost.

`python -m testing.codehub.chaos --seed 3 --steps 300` runs it manually; `make test` runs a short one. At the end, every
line that a workspace acknowledged must exist, in the order of writing. Lines without an answer may exist or not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import psutil

from testing.codehub.full_stack import Stack, fresh_stack
from testing.codehub.tiny_ide import run_through_proxy

_TIMEOUT_S = 180.0
# Large enough for a crash in the middle of an archive, and not compressible.
_DATA_BYTES = 40_000_000
# Short enough for sleep, archive and the GC to happen during the run.
_IN_A_HURRY = {
    "ACTIVITY_FLUSH_INTERVAL": "2",
    "TTL_STANDBY_SECONDS": "10",
    "TTL_ARCHIVE_SECONDS": "5",
    "COORDINATOR_TTL_INTERVAL": "2",
    "COORDINATOR_GC_INTERVAL": "5",
}
_PARTS = ("coordinator", "api", "proxy", "postgres", "valkey")


@dataclass(slots=True)
class Kept:
    """The expected content of a workspace: lines that it acknowledged, and lines whose outcome is unknown."""

    workspace_id: str
    digest: str = ""
    known: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)

    def check(self, text: str) -> None:
        """Check a workspace's content. `text` is the digest of its data and all lines of its log."""
        digest, _, *lines = text.split()
        assert digest == self.digest, f"the data of {self.workspace_id} changed"
        assert len(set(lines)) == len(lines), f"{self.workspace_id} has lines twice: {lines}"
        sure = [line for line in lines if line not in self.unsure]
        assert sure == self.known, f"{self.workspace_id} should hold {self.known} and holds {lines}"


class Chaos:
    """One stack, a few workspaces, and a seeded choice of what happens next."""

    def __init__(self, stack: Stack, seed: int, tell: Callable[[str], None] = lambda _: None) -> None:
        self._stack = stack
        self._random = random.Random(seed)
        self._tell = tell
        self._kept: list[Kept] = []
        self._token = self._port = ""
        self._lines = 0
        self.happened: Counter[str] = Counter()

    def begin(self, workspaces: int) -> None:
        self._find()
        with self._stack.client() as client:
            self._token = client.post("/api/v1/tokens", json={"name": "chaos"}).json()["token"]
            for number in range(workspaces):
                made = client.post("/api/v1/workspaces", json={"name": f"chaos {number}"})
                assert made.status_code == 201, made.text
                self._kept.append(Kept(made.json()["id"]))
        for kept in self._kept:
            self._until_running(kept)
            written = self._inside(kept, f"head -c {_DATA_BYTES} /dev/urandom > data && sha256sum data")
            assert written is not None
            kept.digest = written.split()[0]

    def step(self) -> None:
        """Run one random step: usually a user action, sometimes a crash."""
        what = self._random.choices(
            (self._write, self._ask, self._delete, self._kill_part, self._freeze, self._kill_ide, self._power_cut),
            weights=(10, 8, 1, 3, 1, 1, 1),
        )[0]
        self.happened[what.__name__.strip("_")] += 1
        what()

    def settle(self) -> None:
        """Start everything again and check that everything that was acknowledged exists."""
        for kept in self._kept:
            self._until_running(kept)
            self._eventually(lambda kept=kept: self._read(kept))  # type: ignore[misc]

    # User actions.

    def _write(self) -> None:
        kept = self._random.choice(self._kept)
        self._lines += 1
        line = f"line-{self._lines}"
        kept.unsure.add(line)
        answer = self._inside(kept, f"echo {line} >> log && sync log && echo kept")
        if answer == "kept\n":
            kept.unsure.discard(line)
            kept.known.append(line)

    def _read(self, kept: Kept) -> bool:
        answer = self._inside(kept, "sha256sum data && touch log && cat log && echo end")
        if answer is None or not answer.endswith("end\n"):
            return False
        kept.check(answer.removesuffix("end\n"))
        return True

    def _ask(self) -> None:
        kept = self._random.choice(self._kept)
        action = self._random.choice(("start", "start", "stop", "archive"))
        with contextlib.suppress(httpx.HTTPError):
            self._post(kept, action)
        time.sleep(self._random.random())

    def _delete(self) -> None:
        kept = self._random.choice(self._kept)
        with contextlib.suppress(httpx.HTTPError), self._api() as client:
            client.delete(f"/api/v1/workspaces/{kept.workspace_id}", params={"force": "true"})
        time.sleep(self._random.random())

    def _until_running(self, kept: Kept) -> None:
        def there() -> bool:
            if self._post(kept, "start") in (404, 409):
                self._post(kept, "undelete")
            return self._seen(kept)["status"] == "RUNNING"

        self._eventually(there)

    # Crashes.

    def _kill_part(self) -> None:
        part = self._random.choice(_PARTS)
        for process in self._stack.processes(part):
            self._tell(f"kill {part} {process.pid}")
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _freeze(self) -> None:
        """Freeze a process and resume it, as closing a laptop's lid does."""
        frozen = self._stack.processes("coordinator")
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.random() * 3)
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def _kill_ide(self) -> None:
        kept = self._random.choice(self._kept)
        self._kill_all_of(kept.workspace_id)

    def _power_cut(self) -> None:
        """Kill all of CodeHub at once. Its workspaces either continue or end too."""
        machine = self._random.random() < 0.5
        self._tell("kill the machine" if machine else "kill CodeHub")
        self._stack.kill()
        if machine:
            self._kill_all_of(str(self._stack.data_dir), *(kept.workspace_id for kept in self._kept))
        self._stack.up()
        self._find()

    def _kill_all_of(self, *names: str) -> None:
        for process in psutil.process_iter(["cmdline"]):
            if any(name in word for name in names for word in process.info["cmdline"] or []):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    # Access to the stack.

    def _find(self) -> None:
        self._port = self._stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]

    def _eventually(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        last = ""
        while True:
            try:
                if done():
                    return
            except httpx.HTTPError as error:
                last = repr(error)
            assert time.monotonic() < deadline, (last, self._overview(), self._stack.output()[-4000:])
            time.sleep(0.2)

    def _overview(self) -> str:
        with contextlib.suppress(httpx.HTTPError):
            return "\n".join(str(self._seen(kept)) for kept in self._kept)
        return "the API does not answer"

    def _api(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._stack.url,
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=60,
            trust_env=False,
        )

    def _seen(self, kept: Kept) -> dict[str, object]:
        with self._api() as client:
            answer = client.get(f"/api/v1/workspaces/{kept.workspace_id}")
        return dict(answer.json()) if answer.status_code == 200 else {"status": f"HTTP {answer.status_code}"}

    def _post(self, kept: Kept, action: str) -> int:
        with self._api() as client:
            return client.post(f"/api/v1/workspaces/{kept.workspace_id}:{action}").status_code

    def _inside(self, kept: Kept, command: str) -> str | None:
        """Run a shell command in the workspace. Returns None if it was not reached or the answer was lost."""
        with contextlib.suppress(httpx.HTTPError):
            answer = run_through_proxy(self._port, kept.workspace_id, self._token, command)
            if answer.status_code == 200:
                return answer.text
        return None


@contextlib.contextmanager
def chaos(seed: int, workspaces: int, tell: Callable[[str], None] = lambda _: None) -> Iterator[Chaos]:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.environment |= _IN_A_HURRY | {"LIMITS_MAX_RUNNING_PER_USER": str(workspaces)}
        stack.up()
        made = Chaos(stack, seed, tell)
        made.begin(workspaces)
        yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workspaces", type=int, default=4)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with chaos(options.seed, options.workspaces, lambda text: print(text, flush=True)) as running:
        for number in range(options.steps):
            running.step()
            if number % 25 == 24:
                running.settle()
                print(f"{number + 1} steps: {dict(running.happened)}", flush=True)
        running.settle()


if __name__ == "__main__":
    main()
