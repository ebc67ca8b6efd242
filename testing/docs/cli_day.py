"""A day of a workspace with the `codehub` command, on a complete CodeHub. A test runs it, and the docs show it.

`python -m testing.docs.cli_day` runs it with the real code-server and writes docs/a-day.md.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testing.codehub.full_stack import TIMEOUT_S, Stack, fresh_stack

DOC: Final = Path(__file__).resolve().parents[2] / "docs/a-day.md"
# Not compressible. For the docs, large enough that archiving and restoring can be watched.
_PIECE: Final = 10_000_000
_DOC_PIECES: Final = 150


@dataclass(slots=True)
class Day:
    """Runs commands one after another and records what a user sees."""

    stack: Stack
    seen: list[str] = field(default_factory=list)

    def tell(self, heading: str) -> None:
        self.seen.append(f"\n# {heading}")

    def run(self, words: str, *, code: int = 0, stdin: str = "", shown: str = "", **environment: str) -> str:
        """Run one command as typed. Returns its standard output and adds both to the transcript."""
        done = subprocess.run(
            self.stack.command(*_split(words)),
            env={**self.stack.environment, "COLUMNS": "132", **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, (words, done)
        assert "Traceback" not in done.stderr, (words, done)
        self._keep(shown or f"codehub {words}", done.stderr + done.stdout, code)
        return done.stdout

    def interrupt(self, words: str, until: str) -> None:
        """Run a command until `until` was printed, then send Ctrl-C."""
        command = self.stack.command(*_split(words))
        said = ""
        with subprocess.Popen(
            command,
            env=self.stack.environment,
            stdout=subprocess.PIPE,
            text=True,
            # If the tests run in a shell's background, child processes would ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stdout is not None
            while until not in said:
                line = process.stdout.readline()
                assert line, (words, said)
                said += line
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)
        assert process.returncode == 130, process.returncode
        self._keep(f"codehub {words}", said + "^C", 130)

    def _keep(self, command: str, output: str, code: int) -> None:
        self.seen.append(f"$ {command}")
        self.seen += [line.rstrip() for line in output.strip("\n").splitlines()]
        if code:
            self.seen.append(f"[exit code {code}]")


def _split(words: str) -> list[str]:
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', words)]


def live(day: Day, says: Callable[[str], str], pieces: int = 1) -> None:
    """Run the day, from signing in to the evening. `says` returns the output of the workspace with an id."""
    stack = day.stack
    day.tell("morning: sign in, create a workspace and wait until it runs")
    day.run(
        "login -u admin --password-stdin",
        stdin=f"{stack.password()}\n",
        shown="codehub login -u admin --password-stdin < password",
    )
    created = day.run('ws create api --description "the payments service" --wait')
    assert created.strip() == "api: Running", created
    listed = day.run("ws ls")
    assert re.search(r"^api\s+Running", listed, re.M), listed
    link = day.run("ws open api --print")
    assert link.startswith(f"{stack.url}/"), link

    day.tell("follow the output of the IDE, until Ctrl-C")
    workspace_id = str(json.loads(_quietly(day, "ws show api --json"))["id"])
    day.interrupt("ws logs -f api", until=says(workspace_id))
    assert re.search(r"\d+ %\s+[\d.]+ MB", day.run("ws usage api"))
    home = stack.home_of("api")
    _write(home / "data", (os.urandom(_PIECE) for _ in range(pieces)))
    _write(home / "chapter", [b"one\n"])

    day.tell("lunch: stop it; its files stay on disk")
    assert day.run("ws stop api").strip() == "api: Asleep"

    day.tell("archive it, and restore it when it is needed again")
    assert day.run("ws archive api").strip() == "api: Archived"
    assert not home.exists()
    assert "ARCHIVE KEY" in day.run("admin archives api")
    assert day.run("ws start api").strip() == "api: Running"
    assert (stack.home_of("api") / "chapter").read_bytes() == b"one\n"
    assert (stack.home_of("api") / "data").stat().st_size == pieces * _PIECE
    day.run('ws edit api --memo "left off at the refund tests"')
    assert "left off at the refund tests" in day.run("ws show api")

    day.tell("evening: delete it, and undelete it the next morning")
    day.run("ws rm api", code=2)
    day.run("ws rm api --yes", code=6)
    day.run("ws rm api --yes --force")
    day.run("ws show api", code=5)
    assert workspace_id in day.run("admin undelete")
    assert "was undeleted" in day.run(f"admin undelete {workspace_id}")
    assert day.run("ws start api").strip() == "api: Running"
    assert (stack.home_of("api") / "chapter").read_bytes() == b"one\n"
    assert "Its home is restored" in day.run("ws events api")


def demonstrate(day: Day) -> None:
    """Run `codehub demo` and wait until each of its workspaces is in the state that its description names."""
    day.tell("create a few workspaces in different states")
    shown = day.run("demo")
    for name, state in (
        ("hello", r"Running"),
        ("weekend-project", r"Asleep"),
        ("last-years-thesis", r"Archived"),
        ("idea", r"Not started"),
    ):
        assert re.search(rf"^{name}\s+{state}", shown, re.M), (name, shown)
    day.run("demo --remove")


def _quietly(day: Day, words: str) -> str:
    kept = len(day.seen)
    answer = day.run(words)
    del day.seen[kept:]
    return answer


def _write(path: Path, content: Iterable[bytes]) -> None:
    """Write a file as the workspace's user."""
    with path.open("wb") as file:
        file.writelines(content)
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


def main() -> None:
    with fresh_stack() as stack:
        stack.up()
        day = Day(stack)
        banner = stack.output().split("\n\n")
        day.seen += ["# in another terminal, `codehub up` printed:", *banner[1].splitlines()]
        day.tell("install the IDE in advance (otherwise the first workspace does it)")
        day.run("ide install")
        live(day, lambda _: "HTTP server listening", _DOC_PIECES)
        demonstrate(day)
        day.tell("check the installation, then stop CodeHub")
        day.run("doctor")
        day.run("down")
        text = "\n".join(day.seen).replace(stack.password(), "…").replace(str(stack.data_dir), "/var/lib/codehub")
    # Each was valid for one sign-in within a minute.
    text = re.sub(r"secret=\S+", "secret=…", text)
    DOC.write_text(
        "# A day on the command line\n\nThis is the recording of a real session, made by `python -m testing.docs.cli_day`. "
        "The same session is a test.\n\n"
        f"```text\n{text.strip()}\n```\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
