"""The embedded servers: made whole, stopped cleanly, and back after the worst."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from codehub.adapters.embedded.account import Account, barrier, give_tree, may_read, server_account
from codehub.adapters.embedded.binaries import postgres_bin
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
def test_a_cluster_that_was_half_made_is_created_again(place: Path, leftover: str) -> None:
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


@pytest.mark.needs("root")
def test_a_cluster_that_ran_as_nobody_is_given_to_codehubs_own_user_once(place: Path) -> None:
    """Also when the earlier server still runs, left behind by a CodeHub that was killed."""
    server = EmbeddedPostgres(place)
    server.start()
    write(server, "kept")
    server.stop()
    nobody = 65534
    for directory, _, files in os.walk(place / "postgres"):
        for name in (directory, *(os.path.join(directory, file) for file in files)):
            os.chown(name, nobody, nobody, follow_symlinks=False)
    os.chown(place / "run" / "pg", nobody, nobody)
    left = subprocess.Popen(
        [str(postgres_bin(place, server_account()) / "postgres"), "-D", str(place / "postgres" / "data"),
         "-k", str(place / "run" / "pg"), "-c", "listen_addresses="],
        user=nobody, group=nobody, extra_groups=[], stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        fresh = EmbeddedPostgres(place)
        fresh.start()
        try:
            assert read(fresh) == ["kept"]
            assert fresh.pid is not None
            own = server_account().uid
            assert psutil.Process(fresh.pid).uids().real == own != nobody
            for directory, _, files in os.walk(place / "postgres"):
                for name in (directory, *(os.path.join(directory, file) for file in files)):
                    assert os.lstat(name).st_uid == own, name
        finally:
            fresh.stop()
    finally:
        left.kill()
        left.wait()


@pytest.mark.needs("root")
def test_giving_a_tree_away_follows_no_link_and_gives_nothing_of_others(place: Path) -> None:
    """The earlier user could write there, and may have left traps."""
    tree, outside = place / "tree", place / "outside"
    tree.mkdir()
    outside.mkdir()
    for name in ("linked", "secret"):
        (outside / name).write_text("root's")
    os.chown(tree, 65534, 65534)
    (tree / "symbolic").symlink_to(outside)
    os.link(outside / "linked", tree / "hard")
    (tree / "roots").write_text("root's")
    (tree / "own").write_text("theirs")
    os.chown(tree / "own", 65534, 65534)
    account = Account(54321, 54321, switched=True)
    assert give_tree(tree, account)
    assert not give_tree(tree, account)
    assert (tree.stat().st_uid, (tree / "own").stat().st_uid) == (54321, 54321)
    assert {(outside / name).stat().st_uid for name in ("linked", "secret")} == {0}
    assert ((tree / "roots").stat().st_uid, outside.stat().st_uid) == (0, 0)


@pytest.mark.needs("root")
def test_whether_an_account_may_read_a_file_follows_from_modes_and_groups(place: Path) -> None:
    account = Account(54321, 54322, switched=True)
    file = place / "file"
    file.write_text("x")
    file.chmod(0o600)
    assert not may_read(file, account)
    os.chown(file, 0, 54322)
    file.chmod(0o640)
    assert may_read(file, account)
    file.chmod(0o604)  # the group's bits decide for its members
    assert not may_read(file, account)
    place.chmod(0o700)
    assert barrier(place, account) == place


@pytest.mark.needs("root")
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_that_a_servers_user_left_lead_root_nowhere(place: Path, link: Callable[[Path, Path], None]) -> None:
    """The server's user may write to its directory, and root writes there when it starts the server."""
    first = EmbeddedValkey(place)
    first.start()
    first.stop()
    victim = place / "victim"
    victim.write_text("root's")
    for name in ("valkey.conf", "valkey.log"):
        (place / "valkey" / name).unlink()
        link(victim, place / "valkey" / name)
    fresh = EmbeddedValkey(place)
    fresh.start()
    try:
        with redis.Redis.from_url(fresh.url) as client:
            assert client.ping()
    finally:
        fresh.stop()
    assert (victim.read_text(), victim.stat().st_uid) == ("root's", 0)
