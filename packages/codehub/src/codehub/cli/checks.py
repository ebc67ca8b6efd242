"""The checks of `codehub doctor`: each part of the installation, with its problems and how to fix them.

A check is a function of the effective settings that returns findings. It never raises because of a broken part.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import psutil
import psycopg

from codehub.adapters.backend_set import INSTANCE_BACKENDS, homes_mark
from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.network import Network
from codehub.adapters.embedded.account import barrier, find_account
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.filesystem.project_quota import is_enforced
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.preflight import check_cluster
from codehub.adapters.objectstore.archives import ArchiveStoreId, ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.migrate import latest
from codehub.adapters.postgres.pool import Database, connection_arguments
from codehub.adapters.process.isolation import find_isolation
from codehub.adapters.redis.client import connect
from codehub.cli.effective_settings import EffectiveSettings
from codehub.control.stores import stores_in_use
from codehub.domain.errors import CodeHubError
from codehub.settings import Settings
from codehub.wiring import catalog_of, isolated_before, kubernetes_options

_LOW_DISK_BYTES = 2 << 30
_CLOCK_SKEW_S = 5.0


class Health(StrEnum):
    GOOD = "ok"
    WARNING = "warning"
    BAD = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`boundary` and `verdict` are for scripts, of findings that tried a boundary of a workspace."""

    part: str
    health: Health
    message: str
    fix: str = ""
    boundary: str = ""
    verdict: str = ""


Check = Callable[[EffectiveSettings], Awaitable[list[Finding]]]


async def check_data_dir(state: EffectiveSettings) -> list[Finding]:
    path = state.settings.data_dir
    if not path.exists():
        return [Finding("data directory", Health.WARNING, f"{path} does not exist yet", "`codehub up` creates it")]
    if not os.access(path, os.W_OK):
        return [
            Finding(
                "data directory",
                Health.BAD,
                f"{path} is not writable",
                "change its owner, or set CODEHUB_DATA_DIR",
            )
        ]
    account = find_account(state.settings.server_user)
    if account is not None and (blocked := barrier(path, account)):
        return [
            Finding("data directory", Health.BAD, f"the servers' user cannot enter {blocked}", f"chmod o+x {blocked}")
        ]
    message = f"{path}, {'CodeHub is running' if state.running else 'CodeHub is not running'}"
    return [Finding("data directory", Health.GOOD, message)]


# Reads the server's version, clock, encoding and role, and whether CodeHub's tables exist.
_INSPECT = """
    SELECT current_setting('server_version') AS version, now() AS now, pg_backend_pid() AS pid,
        current_setting('server_encoding') AS encoding,
        current_setting('transaction_read_only') = 'on' AS read_only,
        to_regclass('schema_migrations') IS NOT NULL AS migrated
"""


async def check_database(state: EffectiveSettings) -> list[Finding]:
    url = state.settings.database_url
    if not url:
        return [_embedded("database", "PostgreSQL", EmbeddedPostgres(state.settings.data_dir).stray_pid())]
    try:
        async with await psycopg.AsyncConnection.connect(url, **connection_arguments("codehub-doctor")) as connection:
            row = await (await connection.execute(_INSPECT)).fetchone()
            assert row is not None
            found = [Finding("database", Health.GOOD, f"PostgreSQL {row['version']}")]
            if row["read_only"]:
                message = "it is read-only: a standby, or default_transaction_read_only is on"
                fix = "set CODEHUB_DATABASE_URL to the primary, or free its disk and turn that setting off"
                found.append(Finding("database", Health.BAD, message, fix))
            if row["encoding"] != "UTF8":
                message = f"encoded in {row['encoding']}: names in other scripts may be refused"
                fix = "create it again with ENCODING 'UTF8' TEMPLATE template0, and restore a backup into it"
                found.append(Finding("database", Health.WARNING, message, fix))
            found += _clock(row["now"])
            found += await _schema(connection, bool(row["migrated"]))
            again = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
            if again is not None and again["pid"] != row["pid"]:
                fix = (
                    "set CODEHUB_DATABASE_URL of the coordinator to PostgreSQL itself: its lock belongs to a session"
                )
                found.append(Finding("database", Health.BAD, "the connection goes through a transaction pooler", fix))
            return found
    except psycopg.Error as error:
        message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return [
            Finding(
                "database",
                Health.BAD,
                message,
                "check that the server is running and CODEHUB_DATABASE_URL is correct",
            )
        ]


def _embedded(part: str, server: str, stray_pid: int | None) -> Finding:
    """An embedded server while no `up` holds the data directory."""
    if stray_pid is None:
        return Finding(part, Health.WARNING, "embedded, not running", "`codehub up` starts it")
    message = f"embedded {server} runs (pid {stray_pid}), left behind by a CodeHub that was killed"
    return Finding(part, Health.WARNING, message, "`codehub up` replaces it, `codehub down` stops it")


def _clock(theirs: datetime) -> list[Finding]:
    skew_s = abs((datetime.now(UTC) - theirs).total_seconds())
    if skew_s > _CLOCK_SKEW_S:
        return [
            Finding(
                "clock",
                Health.BAD,
                f"{skew_s:.0f} s off the database's clock",
                "synchronize the clocks of both machines (NTP)",
            )
        ]
    return [Finding("clock", Health.GOOD, f"{skew_s * 1000:.0f} ms off the database's clock")]


async def _schema(connection: psycopg.AsyncConnection[dict[str, object]], migrated: bool) -> list[Finding]:
    version = 0
    if migrated:
        row = await (await connection.execute("SELECT max(version) AS version FROM schema_migrations")).fetchone()
        version = int(str(row["version"])) if row and row["version"] is not None else 0
    if version < latest():
        return [Finding("schema", Health.BAD, f"version {version}, {latest()} is needed", "run `codehub migrate`")]
    if version > latest():
        return [Finding("schema", Health.BAD, f"version {version} belongs to a newer CodeHub", "run that version")]
    return [Finding("schema", Health.GOOD, f"version {version}")]


async def check_redis(state: EffectiveSettings) -> list[Finding]:
    url = state.settings.redis_url
    if not url:
        return [_embedded("redis", "Valkey", EmbeddedValkey(state.settings.data_dir).stray_pid())]
    client = connect(url)
    try:
        async with asyncio.timeout(10):
            info = await client.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return [Finding("redis", Health.GOOD, f"{name} {info.get('valkey_version') or info.get('redis_version')}")]
    except (OSError, TimeoutError, CodeHubError) as error:
        return [
            Finding(
                "redis",
                Health.BAD,
                str(error) or "no answer",
                "check that it is running and CODEHUB_REDIS_URL is correct",
            )
        ]
    except Exception as error:  # noqa: BLE001 - the driver has its own exception hierarchy, and doctor must continue
        return [Finding("redis", Health.BAD, str(error), "check that it is running and CODEHUB_REDIS_URL is correct")]
    finally:
        await client.aclose()


async def check_archives(state: EffectiveSettings) -> list[Finding]:
    where = state.settings.archives
    try:
        async with asyncio.timeout(30):
            store = await asyncio.to_thread(Store, where)
            try:
                await ObjectArchives(store).ping()
            finally:
                store.close()
    except (CodeHubError, OSError, TimeoutError) as error:
        fix = "check CODEHUB_ARCHIVE_URL and, for s3://, the AWS_* variables"
        return [Finding("archive store", Health.BAD, f"{where}: {str(error) or 'no answer'}", fix)]
    return [Finding("archive store", Health.GOOD, where)]


async def check_docker(state: EffectiveSettings) -> list[Finding]:
    if state.settings.runtime in ("process", "kubernetes"):
        return []
    engine = Engine(state.settings.docker_host, "")
    try:
        engine.check_local()
        async with asyncio.timeout(10):
            await engine.ping()
    except (CodeHubError, TimeoutError) as error:
        if state.settings.runtime == "docker":
            message = f"no engine that can be used: {str(error) or 'no answer'}"
            return [Finding("docker", Health.BAD, message, "start it, or set DOCKER_HOST")]
        return [Finding("docker", Health.GOOD, "no engine that can be used; workspaces run as processes")]
    finally:
        await engine.close()
    found = [Finding("docker", Health.GOOD, "the engine answers")]
    if not Network(engine).can_guard:
        message = (
            "containers can reach what listens on this machine and in private networks: CodeHub cannot set the packet "
            "filter that forbids it"
        )
        fix = (
            "run CodeHub as root beside the engine, with iptables; or bind CodeHub and its database to addresses that "
            "containers do not reach"
        )
        found.append(Finding("docker", Health.WARNING, message, fix))
    return found


async def check_kubernetes(state: EffectiveSettings) -> list[Finding]:
    settings = state.settings
    if settings.runtime != "kubernetes":
        return []
    options = kubernetes_options(settings)
    try:
        client = ApiClient(options.access())
    except CodeHubError as error:
        return [Finding("kubernetes", Health.BAD, str(error), "set KUBECONFIG and CODEHUB_K8S_CONTEXT")]
    try:
        catalog = catalog_of(settings)
        profiles = (catalog.profiles[catalog.default], *catalog.profiles.values())
        images = list(dict.fromkeys(profile.image for profile in profiles if profile.image))
        found = await check_cluster(client, options.image, options.claims, options.pods, images)
    finally:
        await client.close()
    healths = {True: Health.BAD, False: Health.WARNING}
    return [
        Finding(one.part, healths[one.is_fatal] if one.fix else Health.GOOD, one.message, one.fix) for one in found
    ]


async def check_stores(state: EffectiveSettings) -> list[Finding]:
    """Check that homes and archives are those the database records. Before the first start, there is nothing to compare."""
    url = state.settings.database_url
    if not url:
        return []
    store = None
    try:
        async with Database(url, max_connections=1) as database:
            registry = PostgresControlStore(database)
            records = await registry.store_records()
            store = await asyncio.to_thread(Store, state.settings.archives)
            # `auto` is a process or a container; both keep homes in the directory unless volumes were chosen.
            backend = INSTANCE_BACKENDS.get(state.settings.runtime, INSTANCE_BACKENDS["docker"])
            mark = homes_mark(state.settings.homes, backend, state.settings.storage)
            used = await stores_in_use([mark, ArchiveStoreId(store)], registry)
        found = []
        for one in used:
            if (recorded := records.get(one.kind)) is None:
                continue
            if await one.read_id() == recorded.id:
                found.append(Finding(one.kind, Health.GOOD, f"{one.place} is this installation's"))
            else:
                message = f"{one.place} does not hold this installation's {one.kind}, which were at {recorded.place}"
                fix = "mount its disk, or correct CODEHUB_HOMES_DIR or CODEHUB_ARCHIVE_URL"
                found.append(Finding(one.kind, Health.BAD, message, fix))
        return found
    except CodeHubError:
        return []  # a store that does not answer is reported by its own check
    finally:
        if store is not None:
            store.close()


async def check_isolation(state: EffectiveSettings) -> list[Finding]:
    """Only for workspaces that run as processes: container engines provide isolation."""
    if state.settings.runtime in ("docker", "kubernetes"):
        return []
    found = await asyncio.to_thread(find_isolation)
    if not found.missing:
        return [Finding("isolation", Health.GOOD, "workspaces have their own files, network and limits")]
    fix = "install bubblewrap and slirp4netns (Debian: apt-get install bubblewrap slirp4netns), or use Docker"
    if why := found.why_refused(state.settings.isolation, isolated_before(state.settings)):
        message = f"no workspace is started: {'; '.join(found.missing)}; and {why}"
        anyway = "CODEHUB_ISOLATION=best-effort starts workspaces all the same"
        return [Finding("isolation", Health.BAD, message, f"{fix}; {anyway}")]
    alone = "" if found.separates_users else "; a second user is refused"
    return [Finding("isolation", Health.WARNING, why + alone, fix) for why in found.missing]


async def check_ports(state: EffectiveSettings) -> list[Finding]:
    found = []
    for name, bind in (
        ("CODEHUB_API_BIND", state.settings.api_bind),
        ("CODEHUB_PROXY_BIND", state.settings.proxy_bind),
    ):
        host, _, port = bind.rpartition(":")
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.settimeout(2)
            taken = probe.connect_ex((host.strip("[]"), int(port))) == 0
        if taken and not state.running:
            found.append(
                Finding("ports", Health.WARNING, f"{bind} is taken by something else", f"free it, or set {name}")
            )
        elif state.running and not taken:
            found.append(Finding("ports", Health.BAD, f"nothing answers on {bind}", "see the output of `codehub up`"))
        else:
            found.append(Finding("ports", Health.GOOD, f"{bind} {'answers' if taken else 'is free'}"))
    return found


async def check_disk(state: EffectiveSettings) -> list[Finding]:
    settings = state.settings
    found = [_disk(what, path) for what, path in (("data", settings.data_dir), ("homes", settings.homes))]
    return [*found, _disk_sizes(settings.homes)] if settings.storage == "local-dir" else found


def _disk_sizes(homes: Path) -> Finding:
    """Say whether the disk sizes of templates are limits or warnings. Both are in order."""
    there = next(each for each in (homes, *homes.parents) if each.exists())
    if is_enforced(there):
        return Finding("disk", Health.GOOD, "disk sizes of templates are enforced (project quotas)")
    return Finding("disk", Health.GOOD, "disk sizes of templates are warnings (no project quotas on the homes' disk)")


def _disk(what: str, path: Path) -> Finding:
    there = next(each for each in (path, *path.parents) if each.exists())
    usage = psutil.disk_usage(str(there))
    message = f"{what}: {usage.free / (1 << 30):.1f} GB free at {path}"
    if usage.free < _LOW_DISK_BYTES:
        return Finding(
            "disk", Health.BAD, message, "free some space: archiving and restoring need as much as the largest home"
        )
    return Finding("disk", Health.GOOD, message)


async def check_names(state: EffectiveSettings) -> list[Finding]:
    settings: Settings = state.settings
    dashboard = settings.public_url.partition("://")[2].rpartition(":")[0] or settings.public_url.partition("://")[2]
    workspaces = (
        settings.workspace_url.partition("://")[2].rpartition(":")[0] or settings.workspace_url.partition("://")[2]
    )
    if dashboard == workspaces and not settings.workspace_host:
        fix = "set CODEHUB_WORKSPACE_BASE_URL to another host name: cookies ignore ports"
        return [Finding("origins", Health.BAD, f"dashboard and workspaces share the host {dashboard}", fix)]
    if not settings.workspace_host and settings.port_sharing in ("users", "link"):
        message = "path mode: a shared port's page can use the workspaces of whoever opens it"
        fix = "set CODEHUB_WORKSPACE_HOST=*.… to separate them, or unset CODEHUB_PORT_SHARING"
        return [Finding("origins", Health.BAD, message, fix)]
    if not settings.workspace_host:
        message = "path mode: workspaces of one owner share an origin"
        return [Finding("origins", Health.GOOD, f"{message} (CODEHUB_WORKSPACE_HOST=*.… separates them)")]
    return [Finding("origins", Health.GOOD, f"each workspace has its own host below {settings.workspace_host[2:]}")]


CHECKS: tuple[Check, ...] = (
    check_data_dir,
    check_database,
    check_redis,
    check_archives,
    check_docker,
    check_kubernetes,
    check_stores,
    check_isolation,
    check_ports,
    check_disk,
    check_names,
)
