"""Takes over from earlier daemons: receives their listening sockets first and retires them last. Blocking.

The connections are opened before this daemon accepts any: once the sockets are shared, a new connection to the
predecessor's port might reach this daemon instead.
"""

from __future__ import annotations

import contextlib
import socket

from sari.daemon import sockets
from sari.daemon.log import fields, logger
from sari.protocol.errors import SariError
from sari.registry import dial
from sari.registry.client import DaemonClient
from sari.registry.model import DaemonEntry
from sari.registry.processes import is_stopped

_TIMEOUT_S = 5.0


class Predecessors:
    """The daemons to replace, if they answer. One that does not answer finds out from the registry."""

    def __init__(self, entries: list[DaemonEntry]) -> None:
        self._clients: list[DaemonClient] = []
        for entry in entries:
            try:
                self._clients.append(_reach(entry))
            except (OSError, SariError, dial.Answered) as error:
                logger.info("a predecessor does not answer %s", fields(boot_id=entry.boot_id, error=str(error)))

    def receive_sockets(self) -> list[socket.socket]:
        """Return the listening sockets (daemon and HTTP) of the first predecessor that passes them on, or an empty list."""
        for client in self._clients if sockets.CAN_PASS else ():
            receiver: sockets.Receiver | None = None
            try:
                receiver = sockets.Receiver()
                client.request("sari/handover", {"path": receiver.path}, _TIMEOUT_S)
                return receiver.receive()
            except (OSError, SariError) as error:
                logger.info("no sockets from a predecessor %s", fields(error=str(error)))
            finally:
                if receiver is not None:
                    receiver.close()
        return []

    def retire(self) -> None:
        """Notify the predecessors that they have been replaced."""
        for client in self._clients:
            with contextlib.suppress(SariError), client:
                client.request("sari/retire", {}, _TIMEOUT_S)
        self._clients.clear()


def _reach(entry: DaemonEntry) -> DaemonClient:
    if is_stopped(entry.pid):
        raise SariError(f"process {entry.pid} is stopped")
    sock = dial.connect(entry.host, entry.port, _TIMEOUT_S)
    try:
        if dial.identify(sock, entry.token, _TIMEOUT_S).boot_id != entry.boot_id:
            raise SariError("another daemon answers on its port")
    except BaseException:
        sock.close()
        raise
    return DaemonClient(sock)
