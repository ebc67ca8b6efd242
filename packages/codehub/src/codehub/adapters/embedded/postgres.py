"""PostgreSQL in the data directory, reached by a socket in a private directory.

The cluster is created once, completely or not at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from codehub.adapters.embedded.account import DEFAULT_USER, give_tree, myself, require_reach, server_account
from codehub.adapters.embedded.binaries import postgres_bin
from codehub.adapters.embedded.layout import kept_secret, private_dir, socket_dir
from codehub.adapters.embedded.server import start_server, stop_server, stop_stray
from codehub.domain.errors import BackendDown, Invalid

_USER = "codehub"
_DATABASE = "codehub"


class EmbeddedPostgres:
    """One cluster under `DATA_DIR/postgres`. `start` and `stop` may be called repeatedly."""

    def __init__(self, data_dir: Path, *, settings: tuple[str, ...] = (), user: str = DEFAULT_USER) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._user = user
        self._account = myself()
        self._process: subprocess.Popen[bytes] | None = None
        self._top = data_dir / "postgres"
        self._cluster = self._top / "data"
        self._socket_dir = Path()
        self._password = ""

    @property
    def pid(self) -> int | None:
        """Return the postmaster's pid while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def url(self, database: str = _DATABASE) -> str:
        return (
            f"postgresql://{_USER}:{quote(self._password)}@/{database}?host={quote(str(self._socket_dir), safe='')}"
        )

    def start(self) -> None:
        self._account = server_account(self._user)
        require_reach(self._data_dir, self._account)
        if self._owned_by_another():
            self.stop_stray()  # it runs as the earlier user and would continue to write as that user
            give_tree(self._cluster, self._account)
            give_tree(self._top, self._account)
        private_dir(self._top, self._account)
        self._password = kept_secret(self._data_dir / "postgres-password")
        self._socket_dir = socket_dir(self._data_dir, "pg", self._account)
        programs = postgres_bin(self._data_dir, self._account)
        if not (self._cluster / "PG_VERSION").exists():
            self._make_cluster(programs)
        self._refuse_another_version(programs)
        self.stop_stray()
        self._process = start_server(
            [
                str(programs / "postgres"),
                "-D", str(self._cluster),
                "-k", str(self._socket_dir),
                "-c", "listen_addresses=",
                "-c", "max_connections=200",
                "-c", "unix_socket_permissions=0777",  # the directory is private; the password decides
                "-c", "logging_collector=off",
                *(part for setting in self._settings for part in ("-c", setting)),
            ],
            account=self._account,
            log=self._top / "postgres.log",
            cwd=self._top,
            ready=self._ready,
        )  # fmt: skip
        self._make_database()

    def stop(self) -> None:
        if self._process is not None:
            # SIGINT is PostgreSQL's fast shutdown: sessions end, nothing is lost.
            stop_server(self._process, signal.SIGINT)
            self._process = None

    def _owned_by_another(self) -> bool:
        """Return whether the cluster is from a CodeHub that ran PostgreSQL as another user (formerly `nobody`)."""
        with contextlib.suppress(FileNotFoundError):
            return self._account.switched and self._cluster.lstat().st_uid != self._account.uid
        return False

    def _make_cluster(self, programs: Path) -> None:
        staging = self._top / "data.new"
        shutil.rmtree(staging, ignore_errors=True)
        with tempfile.NamedTemporaryFile("w", dir=self._top, prefix=".password.") as password:
            password.write(self._password)
            password.flush()
            self._account.own(Path(password.name))
            made = subprocess.run(
                [
                    str(programs / "initdb"), "-D", str(staging), "-U", _USER, f"--pwfile={password.name}",
                    "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions",
                ],
                cwd=self._top,
                capture_output=True,
                text=True,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                check=False,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
            )  # fmt: skip
        if made.returncode != 0:
            raise BackendDown(f"initdb could not create the database in {staging}:\n{made.stderr.strip()[-2000:]}")
        staging.rename(self._cluster)

    def _refuse_another_version(self, programs: Path) -> None:
        there = (self._cluster / "PG_VERSION").read_text().strip()
        answer = subprocess.run(
            [str(programs / "postgres"), "--version"], capture_output=True, text=True, check=True, cwd="/"
        ).stdout
        ours = answer.split()[-1].partition(".")[0]
        if there != ours:
            raise Invalid(
                f"{self._cluster} was created by PostgreSQL {there}, this CodeHub has {ours}: "
                "run the CodeHub version that created it, or restore a dump (docs/backup.md)"
            )

    def stray_pid(self) -> int | None:
        """Return the pid of a postmaster that a killed CodeHub left behind. A stale file may name another process."""
        try:
            pid = int((self._cluster / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            ours = "postgres" in process.name() and Path(process.cwd()) == self._cluster
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if ours else None

    def stop_stray(self) -> bool:
        """Stop a postmaster that a killed CodeHub left behind, and return whether there was one."""
        pid = self.stray_pid()
        if pid is not None:
            stop_stray(pid, signal.SIGINT)
        return pid is not None

    def _ready(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            return True
        return False

    def _make_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_DATABASE]).fetchone():
                connection.execute(f"CREATE DATABASE {_DATABASE}")
