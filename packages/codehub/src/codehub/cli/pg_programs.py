"""Runs `pg_dump` and `pg_restore` on a database URL, without its password on a command line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.binaries import postgres_bin
from codehub.cli.stack.children import die_with_parent
from codehub.domain.errors import CodeHubError

# The variables that libpq reads instead.
_VARIABLES: Final = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}


class ProgramFailed(CodeHubError):
    """A PostgreSQL program failed. The message contains its output."""


def dump(url: str, target: Path, snapshot: str, data_dir: Path) -> None:
    """Dump the whole database as of an exported snapshot."""
    words = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={target}"]
    _run("pg_dump", words, url, data_dir)


def load(url: str, source: Path, data_dir: Path) -> None:
    """Load a dump into an empty database in one transaction."""
    database = conninfo_to_dict(url).get("dbname") or "codehub"
    words = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", f"--dbname={database}"]
    _run("pg_restore", [*words, str(source)], url, data_dir)


def _run(name: str, words: list[str], url: str, data_dir: Path) -> None:
    given = conninfo_to_dict(url)
    environment = {variable: str(given[key]) for key, variable in _VARIABLES.items() if given.get(key)}
    ours = postgres_bin(data_dir, server_account()) / name
    program = str(ours) if ours.exists() else shutil.which(name)
    if program is None:
        raise ProgramFailed(f"{name} is not here: install PostgreSQL's client programs")
    done = subprocess.run(
        [program, *words],
        env={"PATH": os.defpath, "LC_ALL": "C", **environment},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=die_with_parent(os.getpid()),
    )
    if done.returncode != 0:
        raise ProgramFailed(f"{name} failed: {done.stderr.strip()[-2000:]}")
