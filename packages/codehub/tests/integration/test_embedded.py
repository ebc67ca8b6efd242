"""The embedded servers: made whole, stopped cleanly, and back after the worst."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from codehub.adapters.embedded.account import Account, barrier
from codehub.adapters.embedded.layout import kept_secret, socket_dir
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.domain.errors import Invalid
from testing.codehub.services import given_to_servers, service_dir


@pytest.fixture
def place() -> Iterator[Path]:
    path = service_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def write(server: EmbeddedPostgres, text: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (text text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [text])


def read(server: EmbeddedPostgres) -> list[str]:
    with psycopg.connect(server.url()) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM kept ORDER BY text").fetchall()]


def test_what_was_written_is_there_after_a_stop_and_after_a_kill_of_everything(place: Path) -> None:
    first = EmbeddedPostgres(place)
    first.start()
    write(first, "before the stop")
    first.stop()
    assert first.pid is None

    second = EmbeddedPostgres(place)
    second.start()
    write(second, "before the kill")
    assert second.pid is not None
    postmaster = psutil.Process(second.pid)
    family = [postmaster, *postmaster.children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=60)
    second.stop()

    third = EmbeddedPostgres(place)
    third.start()
    try:
        assert read(third) == ["before the kill", "before the stop"]
    finally:
        third.stop()


def test_a_server_that_a_killed_codehub_left_behind_is_replaced(place: Path) -> None:
    left = EmbeddedPostgres(place)
    left.start()
    write(left, "kept")
    stray = left.pid
    assert stray is not None
    fresh = EmbeddedPostgres(place)
    fresh.start()
    try:
        assert fresh.pid != stray
        assert read(fresh) == ["kept"]
    finally:
        left.stop()
        fresh.stop()


def test_a_stale_pid_file_that_names_a_stranger_harms_nobody(place: Path) -> None:
    server = EmbeddedPostgres(place)
    server.start()
    server.stop()
    stale = place / "postgres" / "data" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{stale.parent}\n0\n5432\n\n\n")
    given_to_servers(stale)
    server.start()
    try:
        assert server.pid is not None
    finally:
        server.stop()


@pytest.mark.parametrize("leftover", ["data.new/PG_VERSION", "data.new/base/1"])
def test_a_cluster_that_was_half_made_is_made_anew(place: Path, leftover: str) -> None:
    half = place / "postgres" / leftover
    half.parent.mkdir(parents=True)
    half.write_text("half")
    server = EmbeddedPostgres(place)
    server.start()
    try:
        write(server, "whole")
        assert read(server) == ["whole"]
    finally:
        server.stop()


def test_a_cluster_of_another_postgresql_is_refused_and_left_alone(place: Path) -> None:
    server = EmbeddedPostgres(place)
    server.start()
    server.stop()
    version = place / "postgres" / "data" / "PG_VERSION"
    version.write_text("99\n")
    with pytest.raises(Invalid, match="PostgreSQL 99"):
        EmbeddedPostgres(place).start()
    assert version.read_text() == "99\n"


def test_neither_server_answers_without_its_password(place: Path) -> None:
    postgres = EmbeddedPostgres(place)
    valkey = EmbeddedValkey(place)
    postgres.start()
    valkey.start()
    try:
        secret = (place / "postgres-password").read_text().strip()
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(postgres.url().replace(secret, "guessed"))
        with redis.Redis(unix_socket_path=valkey.url.partition("@")[2]) as stranger:
            with pytest.raises(redis.AuthenticationError):
                stranger.ping()
        for pid in (postgres.pid, valkey.pid):
            assert pid is not None
            listening = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
            assert listening == []
    finally:
        valkey.stop()
        postgres.stop()


def test_valkey_comes_back_after_a_kill(place: Path) -> None:
    killed = EmbeddedValkey(place)
    killed.start()
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.stop()
    fresh = EmbeddedValkey(place)
    fresh.start()
    try:
        with redis.Redis.from_url(fresh.url) as client:
            assert client.ping()
    finally:
        fresh.stop()


def test_a_secret_is_made_once_and_is_the_owners_alone(tmp_path: Path) -> None:
    made = kept_secret(tmp_path / "secret")
    assert kept_secret(tmp_path / "secret") == made
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_sockets_of_a_deep_data_directory_still_have_a_short_path(tmp_path: Path) -> None:
    account = Account(os.geteuid(), os.getegid(), switched=False)
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 8)
    found = socket_dir(deep, "pg", account)
    assert len(os.fsencode(found)) <= 80
    assert found.stat().st_mode & 0o777 == 0o700
    found.rmdir()


@pytest.mark.needs("root")
def test_a_directory_the_servers_user_cannot_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    nobody = Account(65534, 65534, switched=True)
    assert barrier(closed / "data", nobody) in (closed, *closed.parents)
