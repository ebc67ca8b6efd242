"""Real IDEs as plain processes for browser tests: code-server on a unix socket, JupyterLab on a port with its prefix."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from codehub.ports.instances import Upstream
from testing.ide import installed_code_server
from testing.ports import free_port

PATIENCE_S = 120
_SETTINGS = {
    "chat.disableAIFeatures": True,
    "workbench.startupEditor": "none",
    "files.autoSave": "off",
    "telemetry.telemetryLevel": "off",
    "extensions.autoCheckUpdates": False,
    "terminal.integrated.defaultProfile.linux": "bash",
}


class Ide:
    """A running IDE and its home."""

    def __init__(self, home: Path, upstream: Upstream, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.upstream = upstream
        self.process = process


@asynccontextmanager
async def running_code_server() -> AsyncIterator[Ide]:
    programs = await asyncio.to_thread(installed_code_server)
    place = Path(tempfile.mkdtemp(prefix="ide-", dir="/tmp"))
    home = place / "home"
    user = home / ".local/share/code-server/User"
    user.mkdir(parents=True)
    (user / "settings.json").write_text(json.dumps(_SETTINGS))
    (home / "notes.txt").write_text("first line\n")
    path = place / "ide.sock"
    command = [str(programs / "code-server"), "--auth", "none", "--socket", str(path), "--socket-mode", "600"]
    command += ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    command += ["--disable-getting-started-override", str(home)]
    async with _running(command, place, home) as process:
        yield Ide(home, await _answers(Upstream("code-server", socket_path=str(path)), "/healthz"), process)


@asynccontextmanager
async def running_jupyterlab(workspace_id: str) -> AsyncIterator[Ide]:
    place = Path(tempfile.mkdtemp(prefix="ide-", dir="/tmp"))
    home = place / "home"
    home.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.base_url=/w/{workspace_id}/", "--no-browser"]
    command += ["--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.ip=127.0.0.1", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.allow_origin=*"]
    command += ["--ServerApp.allow_remote_access=True", f"--ServerApp.root_dir={home}", "--LabApp.news_url=None"]
    command += ["--LanguageServerManager.autodetect=False"]
    async with _running(command, place, home) as process:
        upstream = await _answers(Upstream("jupyterlab", "127.0.0.1", port), f"/w/{workspace_id}/api")
        yield Ide(home, upstream, process)


@asynccontextmanager
async def _running(command: list[str], place: Path, home: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        # Children of its children may still write for a moment.
        for _ in range(20):
            shutil.rmtree(place, ignore_errors=True)
            if not place.exists():
                break
            await asyncio.sleep(0.1)


async def _answers(upstream: Upstream, path: str) -> Upstream:
    """Until it answers 200."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                if upstream.socket_path:
                    reader, writer = await asyncio.open_unix_connection(upstream.socket_path)
                else:
                    reader, writer = await asyncio.open_connection(upstream.host, upstream.port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    if b" 200 " in await reader.readline():
                        return upstream
                finally:
                    writer.close()
            await asyncio.sleep(0.2)
