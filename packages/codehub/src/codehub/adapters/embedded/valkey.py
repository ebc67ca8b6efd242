"""Valkey in the data directory. It holds hints and a write buffer, so nothing is kept across a restart."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

import psutil

from codehub.adapters.embedded.account import DEFAULT_USER, give_tree, myself, require_reach, server_account
from codehub.adapters.embedded.binaries import valkey_server
from codehub.adapters.embedded.layout import kept_secret, private_dir, socket_dir, write_for
from codehub.adapters.embedded.server import start_server, stop_server, stop_stray


class EmbeddedValkey:
    """One server under `DATA_DIR/valkey`, on a socket in a private directory and with a password."""

    def __init__(self, data_dir: Path, *, user: str = DEFAULT_USER) -> None:
        self._data_dir = data_dir
        self._user = user
        self._account = myself()
        self._process: subprocess.Popen[bytes] | None = None
        self._top = data_dir / "valkey"
        self._socket = Path()
        self._password = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def url(self) -> str:
        return f"unix://:{quote(self._password)}@{self._socket}"

    def start(self) -> None:
        self._account = server_account(self._user)
        require_reach(self._data_dir, self._account)
        give_tree(self._top, self._account)
        private_dir(self._top, self._account)
        self._password = kept_secret(self._data_dir / "valkey-password")
        self._socket = socket_dir(self._data_dir, "vk", self._account) / "valkey.sock"
        self.stop_stray()
        self._socket.unlink(missing_ok=True)
        configuration = self._top / "valkey.conf"
        write_for(
            configuration,
            f"port 0\nunixsocket {self._socket}\nunixsocketperm 700\nrequirepass {self._password}\n"
            f'save ""\nappendonly no\ndaemonize no\ndir {self._top}\npidfile {self._top / "pid"}\nmaxmemory 256mb\n'
            "maxmemory-policy noeviction\nclient-output-buffer-limit pubsub 32mb 8mb 60\n",
            self._account,
        )
        self._process = start_server(
            [str(valkey_server(self._data_dir, self._account)), str(configuration)],
            account=self._account,
            log=self._top / "valkey.log",
            cwd=self._top,
            ready=self._ready,
        )

    def stop(self) -> None:
        if self._process is not None:
            stop_server(self._process, signal.SIGTERM)
            self._process = None

    def stray_pid(self) -> int | None:
        """Return the pid of a server that a killed CodeHub left behind."""
        try:
            pid = int((self._top / "pid").read_text())
            ours = str(self._top / "valkey.conf") in psutil.Process(pid).cmdline() or (
                Path(psutil.Process(pid).cwd()) == self._top
            )
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if ours else None

    def stop_stray(self) -> bool:
        """Stop a server that a killed CodeHub left behind, and return whether there was one."""
        pid = self.stray_pid()
        if pid is not None:
            stop_stray(pid, signal.SIGTERM)
        return pid is not None

    def _ready(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(str(self._socket))
            probe.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
            answer = b""
            while b"PONG" not in answer:
                chunk = probe.recv(100)
                if not chunk:
                    return False
                answer += chunk
            return True
        return False
