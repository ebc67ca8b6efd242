"""The schema as PostgreSQL describes it, for `docs/schema.sql` and the test that keeps it up to date.

`python -m testing.codehub.schema` rewrites it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg

from codehub.adapters.embedded.account import server_account
from codehub.adapters.embedded.binaries import postgres_bin
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from testing.codehub.services import service_dir

DESCRIBED = Path(__file__).parents[2] / "docs" / "schema.sql"


def described_schema(url: str) -> str:
    """Return pg_dump's description of the schema, without parts that differ from run to run."""
    program = postgres_bin(Path("/nonexistent"), server_account()) / "pg_dump"
    dump = subprocess.run(
        [str(program), "--schema-only", "--no-owner", "--no-privileges", "--exclude-table=schema_migrations", url],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.defpath},
    ).stdout
    kept = [line for line in dump.splitlines() if line and not re.match(r"--|\\|SET |SELECT pg_catalog", line)]
    return (
        "-- Written by `python -m testing.codehub.schema` from the migrations; a test keeps it fresh.\n"
        + "\n".join(kept)
        + "\n"
    )


def main() -> None:
    place = service_dir()
    server = EmbeddedPostgres(place)
    server.start()
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE described")
        asyncio.run(migrate(server.url("described")))
        DESCRIBED.write_text(described_schema(server.url("described")))
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
