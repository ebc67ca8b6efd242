"""Starts the daemon until it is ready, and shuts it down until the process can exit.

The order matters: take the lifetime lock before anyone can read our entry; bind the sockets before writing the
registry; retire the predecessors only after we are registered; report "ready" last. A failure at any step leaves the
predecessors unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sari import __version__
from sari.daemon import sockets
from sari.daemon.facade import DaemonFacade
from sari.daemon.heartbeat import Heartbeat, Superseded
from sari.daemon.log import fields, logger, open_log
from sari.daemon.predecessor import Predecessors
from sari.daemon.service import Listeners, Service
from sari.daemon.warm_roots import WarmRoots
from sari.edits.transaction import Transactions
from sari.index.cleanup import remove_stale_indexes
from sari.protocol.errors import SariError
from sari.protocol.facade import HttpServerLike
from sari.protocol.tooling import WorkspaceOpener
from sari.registry.layout import Layout, home_directory, make_private_directory
from sari.registry.locks import FileLock, is_locked
from sari.registry.model import DaemonEntry, daemon_fields
from sari.registry.processes import start_mark
from sari.registry.settings import Settings
from sari.registry.store import LOCK_WAIT_S, Store, access_token
from sari.web.server import HttpServer

# Packages that a daemon may need later. All are imported before it is ready, so that neither an upgrade that replaces
# files nor two concurrent first calls can encounter a half-imported module.
_EAGER = (
    "sari.protocol", "sari.registry", "sari.index", "sari.languages", "sari.tools", "sari.diagnostics", "sari.web",
    "sari.daemon",
)  # fmt: skip


# Short, because `sari daemon stop` promises to stop at once.
_HTTP_CLOSING_S = 2.0
_LOOPBACK_TIMEOUT_S = 5.0
# How often indexes of deleted workspaces are removed.
_CLEANUP_S = 600.0
# Slightly more than the HTTP server's deadline for running requests.
_HTTP_ANSWERING_S = 8.0


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options that the starting process passed."""

    layout: Layout
    daemon_port: int
    http_port: int
    explicit_daemon_port: bool
    explicit_http_port: bool
    replaces: frozenset[str]

    @classmethod
    def read(cls, content: Mapping[str, object]) -> StartOptions:
        """Parse the JSON that the starting process passed."""
        return cls(
            Layout(str(content["registry_file"])),
            int(str(content["daemon_port"])),
            int(str(content["http_port"])),
            content.get("explicit_daemon_port") is True,
            content.get("explicit_http_port") is True,
            frozenset(str(one) for one in _list(content.get("replaces"))),
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


Report = Callable[[dict[str, object]], None]


def run_daemon(options: StartOptions, environ: Mapping[str, str], report: Report) -> None:
    """Run a daemon. Returns when it has ended."""
    layout = options.layout
    settings = Settings.from_environ(environ)
    for directory in (layout.data_dir, layout.lock_dir, layout.log_dir):
        make_private_directory(directory)
        with contextlib.suppress(OSError):
            os.chmod(directory, 0o700)
    boot_id = os.urandom(8).hex()
    open_log(layout.log_dir, boot_id)
    logger.info("starting %s", fields(version=__version__, pid=os.getpid(), replaces=sorted(options.replaces)))
    opener = load_everything()
    if options.replaces:
        check_self(opener)
    _drop_dead_locks(layout)
    life = FileLock(layout.life_lock(boot_id))
    life.acquire(0.0)
    try:
        # Not asyncio.run, which would wait for the threads of abandoned calls. The process exits after this.
        asyncio.new_event_loop().run_until_complete(_serve(options, settings, environ, boot_id, life, opener, report))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(life.path)
        life.release()


def load_everything() -> WorkspaceOpener:
    """Import everything that may be needed later, and return the function that opens workspaces."""
    for package in _EAGER:
        module = importlib.import_module(package)
        for found in pkgutil.iter_modules(module.__path__, f"{package}."):
            if not found.ispkg and not _is_foreign(found.name):
                importlib.import_module(found.name)
    from sari.tools.workspace import open_workspace

    return open_workspace


def _is_foreign(name: str) -> bool:
    # Skip modules for another platform and the program itself.
    last = name.rpartition(".")[2]
    return last == "__main__" or last.endswith("_windows" if sys.platform != "win32" else "_posix")


def check_self(opener: WorkspaceOpener) -> None:
    """Check that this version can answer `status`, so that a broken version does not replace a working one."""
    from sari.daemon.calls import RunningCall

    with tempfile.TemporaryDirectory(prefix="sari-check-") as directory:
        root, data = Path(directory, "root"), Path(directory, "data")
        root.mkdir()
        data.mkdir()
        workspace = opener(root, data)
        try:
            result = workspace.call("status", {}, RunningCall(None))
        finally:
            workspace.close()
        if result.is_error:
            raise SariError(f"its own check failed: {result.text}")


def _drop_dead_locks(layout: Layout) -> None:
    # Only one daemon starts at a time, so none of these locks is being taken right now.
    for name in os.listdir(layout.lock_dir):
        path = os.path.join(layout.lock_dir, name)
        if name.endswith(".lock") and is_locked(path) is False:
            with contextlib.suppress(OSError):
                os.unlink(path)


async def _serve(
    options: StartOptions,
    settings: Settings,
    environ: Mapping[str, str],
    boot_id: str,
    life: FileLock,
    opener: WorkspaceOpener,
    report: Report,
) -> None:
    # A registry that stays locked must be reported before the start timeout expires.
    store = Store(options.layout, min(LOCK_WAIT_S, settings.start_timeout_s / 2))
    old = [entry for entry in store.read().daemons.values() if entry.boot_id in options.replaces]
    token = access_token(options.layout)
    predecessors = await asyncio.to_thread(Predecessors, old)
    listeners = _listen(options, await asyncio.to_thread(predecessors.receive_sockets))
    await asyncio.to_thread(_check_loopback, sockets.port_of(listeners.daemon))
    service = Service(boot_id, token, settings, listeners, opener, options.layout, home_directory(environ))
    entry = DaemonEntry(
        boot_id,
        sockets.HOST,
        sockets.port_of(listeners.daemon),
        os.getpid(),
        __version__,
        time.time(),
        time.time(),
        token=token,
        process_mark=start_mark(os.getpid()) or "",
    )
    life.sign(json.dumps(daemon_fields(entry)))
    heartbeat = Heartbeat(store, entry, service)
    service.begin()
    try:
        await asyncio.to_thread(heartbeat.register, options.replaces)
    except Superseded as other:
        report({"use": {"boot_id": other.entry.boot_id, **daemon_fields(other.entry)}})
        await service.close()
        return
    await asyncio.to_thread(predecessors.retire)
    _obey_signals(service)
    web = asyncio.create_task(_serve_http(service, store, token))
    report({"ready": {"boot_id": boot_id, **daemon_fields(replace(entry, last_seen_ts=time.time()))}})
    logger.info("ready %s", fields(port=entry.port, http_port=sockets.port_of(listeners.http)))
    beats = asyncio.create_task(heartbeat.run())
    warm_roots = asyncio.create_task(WarmRoots(service.workspaces, options.layout.warm_roots_file).run())
    cleanup = asyncio.create_task(_clean_up(Path(options.layout.data_dir)))
    why = await service.run()
    logger.info("ending %s", fields(why=why))
    beats.cancel()
    warm_roots.cancel()
    cleanup.cancel()
    await heartbeat.unregister()
    web.cancel()
    if service.draining:
        # Requests that arrived over HTTP before the successor took the socket are still answered, which needs the
        # workspaces.
        await asyncio.wait([web], timeout=_HTTP_ANSWERING_S)
    await service.close()
    await asyncio.wait([web], timeout=_HTTP_CLOSING_S)


def _listen(options: StartOptions, passed: list[socket.socket]) -> Listeners:
    """Return the predecessor's sockets if they match the requested ports, else bind new ones."""
    daemon = passed[0] if passed else None
    http = passed[1] if len(passed) > 1 else None
    if daemon is not None and options.explicit_daemon_port and sockets.port_of(daemon) != options.daemon_port:
        daemon.close()
        daemon = None
    if http is not None and options.explicit_http_port and sockets.port_of(http) != options.http_port:
        http.close()
        http = None
    return Listeners(
        daemon or sockets.listen(options.daemon_port, options.explicit_daemon_port, "--daemon-port"),
        http or sockets.listen(options.http_port, options.explicit_http_port, "--http-port"),
    )


def _check_loopback(port: int) -> None:
    """Fail if the daemon cannot be reached on loopback, because it must not keep running."""
    try:
        with socket.create_connection((sockets.HOST, port), _LOOPBACK_TIMEOUT_S):
            return
    except OSError as error:
        raise SariError(
            f"{sockets.HOST}:{port} cannot be reached from this machine itself ({error.strerror or error}): bring the "
            "loopback interface up (`ip link set lo up`)"
        ) from error


async def _clean_up(data_dir: Path) -> None:
    """Finish edits that a crash interrupted, then remove stale indexes periodically while the daemon serves."""
    with contextlib.suppress(OSError, SariError):
        await asyncio.to_thread(Transactions(data_dir / "edits").recover)
    while True:
        for root in await asyncio.to_thread(remove_stale_indexes, data_dir):
            logger.info("index removed: its workspace is gone %s", fields(root=root))
        await asyncio.sleep(_CLEANUP_S)


def _obey_signals(service: Service) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Event loops on Windows have no signal handlers. The default action ends the process there.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, service.stop, f"signal {number.name}")


async def _serve_http(service: Service, store: Store, token: str) -> None:
    """Run the HTTP server while the daemon serves. A draining daemon leaves the socket to its successor."""
    server: HttpServerLike | None = None
    leaving: asyncio.Task[None] | None = None
    facade = DaemonFacade(service, store, asyncio.get_running_loop())
    try:
        while True:
            service.drain_changed.clear()
            if not service.draining and server is None:
                server = HttpServer(facade, service.listeners.http.dup(), token)
                server.start()
            elif service.draining and server is not None:
                # Not cancelled with this task, because it still answers requests.
                leaving = asyncio.create_task(asyncio.to_thread(server.close, leaving=True))
                server = None
            await service.drain_changed.wait()
    finally:
        if leaving is not None:
            await leaving
        if server is not None:
            await asyncio.to_thread(server.close)
