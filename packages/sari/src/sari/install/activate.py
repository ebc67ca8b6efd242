"""The second half of an installation or upgrade, run by the new version: check, switch, replace the daemon.

    python -m sari.install.activate PREFIX ENVIRONMENT

If a step fails, the old version stays in use and the new environment is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sari import __version__
from sari.install.application import READY, Application, program_of, write_program
from sari.install.errors import InstallError
from sari.protocol.errors import SariError
from sari.registry.find import Finder, Found
from sari.registry.layout import find_layout
from sari.registry.settings import Settings

_CHECK_S = 120.0


def activate(application: Application, environment: Path) -> str:
    """Switch to this version. Returns a message for the user. On failure, raises and keeps the old version."""
    before = application.current()
    try:
        write_program(environment)
        check(environment)
        (environment / READY).write_text(__version__, "utf-8")
        application.switch(environment)
        try:
            daemon = hand_over()
        except SariError as error:
            if before is not None:
                application.switch(before)
            raise InstallError(f"the running daemon could not be replaced: {error}") from error
    except SariError:
        if before != environment:
            shutil.rmtree(environment, ignore_errors=True)
        raise
    application.prune()
    return f"sari {__version__} is installed: {application.command}\n{daemon}"


def check(environment: Path) -> None:
    """Check that the new version starts and answers a client, before the command points to it."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    try:
        done = subprocess.run(
            [str(program_of(environment)), "mcp"],
            input=json.dumps(hello) + "\n",
            capture_output=True,
            text=True,
            timeout=_CHECK_S,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[0])
        version = answer["result"]["serverInfo"]["version"]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError, TypeError) as error:
        raise InstallError(f"the new version does not answer a client ({error!r}), so it was not taken") from error
    if version != __version__:
        raise InstallError(f"the new environment holds sari {version} and not {__version__}, so it was not taken")


def hand_over() -> str:
    """Replace a running older daemon. A newer or equal one is kept, and none is started unnecessarily."""
    finder = Finder(find_layout(os.environ), Settings.from_environ(os.environ), __version__)
    found: Found | None = finder.find()
    if found is None:
        return "No daemon is running; the first client starts one."
    found.sock.close()
    if not found.older:
        return f"The running daemon (version {found.entry.version}) is used as it is."
    entry = finder.upgrade()
    if entry is None:
        return "The running daemon is left to the clients to replace."
    return f"The running daemon (version {found.entry.version}) handed over to version {entry.version}."


def main(words: list[str]) -> int:
    prefix, environment = words
    try:
        print(activate(Application(Path(prefix)), Path(environment)))
    except SariError as error:
        print(f"sari: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
