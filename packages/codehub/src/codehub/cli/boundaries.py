"""The part of `codehub doctor` that tries the boundaries of a workspace from inside of one.

Which targets this installation has, and what the results say to people. What an attempt does is the probe's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

from codehub.adapters.docker.engine import DEFAULT_HOST
from codehub.adapters.docker.instances import DockerOptions
from codehub.adapters.docker.probes import DockerProbes
from codehub.adapters.probe_workspaces import Neighbour, ProbeRuntime, probe_workspaces
from codehub.adapters.process.probes import ProcessProbes
from codehub.cli.checks import Finding, Health
from codehub.cli.effective_settings import EffectiveSettings
from codehub.domain.boundaries import Attempt, Boundary, Judgement, Means, Outcome, Verdict, judge
from codehub.domain.errors import CodeHubError
from codehub.settings import Settings
from codehub.wiring import backend_options, catalog_of, stored_installation_id

DEADLINE_S = 10  # removing the workspaces afterwards takes up to a few seconds more
_ALONE_S = 10  # how much longer a probe lives whose doctor was killed
_CONTROL_TIMEOUT_S = 2.0
_PREPARE_TIMEOUT_S = 120.0
_SPARE_MEMORY_BYTES = 1 << 30
_MOST_FILES = 50
_METADATA = ("169.254.169.254", "fd00:ec2::254")
# Programs that workspaces run; homes, which are a boundary of their own; and where the probes themselves are.
_OTHER_PARTS = ("ide", "homes", "run")


@dataclass(frozen=True, slots=True)
class Fixes:
    """What to do about a boundary that does not hold, on one runtime."""

    network: str
    files: str
    limits: str


_PROCESS = Fixes(
    "install bubblewrap and slirp4netns and restart the workspaces, or set CODEHUB_RUNTIME=docker; if the address is in "
    "CODEHUB_INSTANCE_NETWORKS, take it out",
    "install bubblewrap and restart the workspaces",
    "run CodeHub as root, or have systemd delegate a subtree of control groups to it (Delegate=yes)",
)
_DOCKER = Fixes(
    "run CodeHub as root beside the engine, with iptables, and start a workspace, which sets the packet filter again; if "
    "the address is in CODEHUB_INSTANCE_NETWORKS, take it out",
    "use an engine with its default isolation: no privileged containers, its own seccomp profile",
    "use an engine that enforces limits; `docker info` warns about those that it cannot enforce",
)
_PART, _START = "boundary", "start CodeHub (`codehub up`), then run `codehub doctor` again"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part listens: `path` of a Unix socket, or addresses and a port."""

    path: str = ""
    addresses: tuple[str, ...] = ()
    port: int = 0

    def attempts(self, gateway: str) -> tuple[Attempt, ...]:
        """`gateway` is where a workspace would find this machine."""
        if self.path:
            return (Attempt(Means.UNIX, self.path),)
        local = any(ip_address(address).is_loopback for address in self.addresses)
        addresses = (*self.addresses, *((gateway,) if local else ()))
        return tuple(Attempt(Means.TCP, address, self.port) for address in addresses)

    def __str__(self) -> str:
        return self.path or f"{self.addresses[0]}:{self.port}"


async def check_boundaries(state: EffectiveSettings, deadline_s: int = DEADLINE_S) -> list[Finding]:
    reason = _not_here(state.settings)
    if reason is not None:
        return [_untried(*reason)]
    try:
        return [_finding(judgement) for judgement in await _try_all(state.settings, deadline_s)]
    except (CodeHubError, OSError) as error:
        return [_untried(f"a throw-away workspace: {error}", "fix that, then run `codehub doctor` again")]


def _runtime(settings: Settings) -> str:
    chosen_docker = settings.runtime == "auto" and (settings.data_dir / "runtime").exists()
    return "docker" if chosen_docker else settings.runtime


def _not_here(settings: Settings) -> tuple[str, str] | None:
    runtime = _runtime(settings)
    if runtime == "kubernetes":
        return (
            "not tried on Kubernetes from inside a workspace",
            "the check of the cluster tries forbidden connections; docs/security.md names the test of each boundary",
        )
    if runtime == "docker" and settings.homes_host_dir is not None:
        return (
            "not tried: CodeHub itself runs in a container",
            "docs/security.md says what is not a boundary in the Compose installation",
        )
    owner = settings.data_dir.stat().st_uid if settings.data_dir.exists() else os.geteuid()
    if os.geteuid() not in (0, owner):
        return f"{settings.data_dir} belongs to another user", "run `codehub doctor` as the user who runs CodeHub"
    return None


def _untried(why: str, fix: str) -> Finding:
    verdict = Verdict.NOT_TRIED
    return Finding(_PART, Health.WARNING, f"{verdict}: {why}", fix, boundary="all", verdict=verdict)


def _finding(judgement: Judgement) -> Finding:
    health = {Verdict.HELD: Health.GOOD, Verdict.NOT_HELD: Health.BAD, Verdict.NOT_TRIED: Health.WARNING}
    name, verdict = judgement.boundary.name, judgement.verdict
    said = f"{name}: {verdict}" + (f" ({judgement.why})" if judgement.why else "")
    return Finding(_PART, health[verdict], said, judgement.fix, boundary=name, verdict=verdict)


async def _try_all(settings: Settings, deadline_s: int) -> list[Judgement]:
    on_docker = _runtime(settings) == "docker"
    fixes = _DOCKER if on_docker else _PROCESS
    made: list[ProbeRuntime] = []

    def make(base: Path) -> ProbeRuntime:
        made.append(_docker_probes(base, settings) if on_docker else _process_probes(base, settings))
        return made[-1]

    boundaries: list[Boundary] = []
    outcomes: dict[Attempt, Outcome] = {}
    async with probe_workspaces(settings.data_dir, make, deadline_s + _ALONE_S) as probes:
        runtime = made[-1]
        # Not part of the deadline: the first container of a machine waits for its tools.
        async with asyncio.timeout(_PREPARE_TIMEOUT_S):
            gateway = await runtime.prepare()
        async with _bait(fixes, gateway, also_gateway=on_docker) as bait:
            try:
                async with asyncio.timeout(deadline_s):
                    neighbour = await probes.start_neighbour()
                    boundaries += await _parts(settings, fixes, gateway)
                    if on_docker:
                        boundaries.append(_engine(settings))
                    boundaries += [*bait, *_neighbour(neighbour, fixes, gateway), _metadata(fixes)]
                    boundaries += _files(settings, neighbour, fixes)
                    boundaries += _resources(runtime, fixes, own_user_namespaces=_may_nest(settings, on_docker))
                    await probes.attack([a for boundary in boundaries for a in boundary.attempts], outcomes)
            except TimeoutError:
                if not boundaries:
                    raise TimeoutError(f"it did not answer within {deadline_s} s") from None
    return [judge(boundary, outcomes) for boundary in boundaries]


def _process_probes(base: Path, settings: Settings) -> ProbeRuntime:
    options = backend_options(settings, "").process
    assert options is not None
    return ProcessProbes(base, options)


def _docker_probes(base: Path, settings: Settings) -> ProbeRuntime:
    catalog = catalog_of(settings)
    profiles = [catalog.profiles[catalog.default], *catalog.profiles.values()]
    images = (*(profile.image for profile in profiles if profile.image), *catalog.allowed_images)
    limits = backend_options(settings, "").limits
    options = DockerOptions(base, limits, allowed_networks=settings.instance_networks)
    return DockerProbes(base, settings.docker_host, stored_installation_id(settings), options, images)


def _may_nest(settings: Settings, on_docker: bool) -> bool:
    """Whether workspaces may make user namespaces. In containers, the engine's filter of system calls forbids it."""
    return settings.instance_user_namespaces and not on_docker


async def _parts(settings: Settings, fixes: Fixes, gateway: str) -> list[Boundary]:
    """CodeHub's own parts, each if it answers us: what does not answer anybody proves nothing."""
    found = []
    for name, where in (
        ("reach the API", lambda: bound_place(settings.api_bind)),
        ("reach the proxy", lambda: bound_place(settings.proxy_bind)),
        ("reach the database", lambda: database_place(settings.database_url)),
        ("reach Valkey", lambda: redis_place(settings.redis_url)),
    ):
        place = await asyncio.to_thread(_located, where)
        if place is None:
            found.append(Boundary(name, (), fixes.network, "it is not running, or its address is not known", _START))
        elif not await _answers(place):
            found.append(Boundary(name, (), fixes.network, f"nothing answers on {place}", _START))
        else:
            found.append(Boundary(name, place.attempts(gateway), fixes.network))
    return found


def _engine(settings: Settings) -> Boundary:
    """Whoever reaches the engine is root. Its socket answers us, or no container would run."""
    path = (settings.docker_host or DEFAULT_HOST).removeprefix("unix://")
    usual = DEFAULT_HOST.removeprefix("unix://")
    attempts = tuple(Attempt(Means.UNIX, each) for each in dict.fromkeys((path, usual)))
    return Boundary("reach the Docker engine", attempts, "do not mount the engine's socket into workspaces")


def _located(where: Callable[[], Place | None]) -> Place | None:
    with contextlib.suppress(OSError, ValueError, psycopg.Error):
        return where()
    return None


def _resolved(host: str, port: int) -> Place:
    """Wildcards are this machine; names are looked up here, as the probe may have no resolver."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return Place(addresses=tuple(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found)), port=port)


def bound_place(bind: str) -> Place:
    host, _, port = bind.rpartition(":")
    return _resolved(host.strip("[]"), int(port))


def database_place(url: str) -> Place | None:
    if not url:
        return None
    values = conninfo_to_dict(url)
    host = str(values.get("hostaddr") or values.get("host") or "/var/run/postgresql").partition(",")[0]
    port = int(str(values.get("port") or 5432).partition(",")[0])
    return Place(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else _resolved(host, port)


def redis_place(url: str) -> Place | None:
    if not url:
        return None
    parts = urlsplit(url)
    return (
        Place(unquote(parts.path)) if parts.scheme == "unix" else _resolved(parts.hostname or "", parts.port or 6379)
    )


async def _answers(place: Place) -> bool:
    opened: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    for address in place.addresses or ("",):
        opened = asyncio.open_connection(address, place.port) if address else asyncio.open_unix_connection(place.path)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CONTROL_TIMEOUT_S):
                _, writer = await opened
            writer.close()
            return True
    return False


@contextlib.asynccontextmanager
async def _bait(fixes: Fixes, gateway: str, *, also_gateway: bool) -> AsyncIterator[list[Boundary]]:
    """Services of this machine that answer everyone who can connect: on its loopback, and on its other addresses."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening: list[Boundary] = []
    async with contextlib.AsyncExitStack() as stack:
        for name, address in (
            ("reach this machine's loopback", "127.0.0.1"),
            ("reach this machine's network address", _own_address()),
            ("reach this machine's address on the containers' network", gateway if also_gateway else None),
        ):
            if address is None:
                continue
            try:
                server = await asyncio.start_server(close, address, 0)
            except OSError as error:
                listening.append(Boundary(name, (), fixes.network, f"cannot listen on {address}: {error}"))
                continue
            await stack.enter_async_context(server)
            place = Place(addresses=(address,), port=server.sockets[0].getsockname()[1])
            listening.append(Boundary(name, place.attempts(gateway), fixes.network))
        yield listening


def _own_address() -> str | None:
    found = (
        each.address for all_of in psutil.net_if_addrs().values() for each in all_of if each.family == socket.AF_INET
    )
    return next((address for address in found if not ip_address(address).is_loopback), None)


def _neighbour(other: Neighbour, fixes: Fixes, gateway: str) -> list[Boundary]:
    ports = tuple(Attempt(Means.TCP, address, other.port) for address in ("127.0.0.1", other.address, gateway))
    abstract = (Attempt(Means.ABSTRACT, other.abstract),)
    return [
        Boundary("reach another workspace's ports", ports, fixes.network),
        Boundary("reach another workspace's abstract sockets", abstract, fixes.network),
        Boundary("reach another workspace's IDE", (Attempt(Means.UNIX, other.socket_path),), fixes.files),
    ]


def _metadata(fixes: Fixes) -> Boundary:
    attempts = tuple(Attempt(Means.TCP, address, 80, answers=False) for address in _METADATA)
    return Boundary("reach cloud metadata", attempts, fixes.network, retry=fixes.network)


def _files(settings: Settings, other: Neighbour, fixes: Fixes) -> list[Boundary]:
    homes = [other.home / "secret", other.home, *_some(settings.homes, 1, ())]
    data = [other.record, *_some(settings.data_dir, 2, _OTHER_PARTS)]
    return [
        Boundary("read another home", _reads(homes), fixes.files),
        Boundary("read CodeHub's data directory", _reads(data), fixes.files),
    ]


def _some(top: Path, depth: int, without: Iterable[str]) -> list[Path]:
    """A sample: files and, at the last level, directories that have something in them."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(top), key=lambda entry: entry.name):
            if entry.name in without or entry.is_symlink():
                continue
            if entry.is_dir() and depth > 1:
                found += _some(Path(entry.path), depth - 1, ())
            elif entry.is_file() or (entry.is_dir() and any(Path(entry.path).iterdir())):
                found.append(Path(entry.path))
    return found[:_MOST_FILES]


def _reads(paths: Iterable[Path]) -> tuple[Attempt, ...]:
    return tuple(Attempt(Means.READ, str(path)) for path in paths)


def _resources(runtime: ProbeRuntime, fixes: Fixes, *, own_user_namespaces: bool) -> list[Boundary]:
    memory, processes = "take more memory than its limit", "start more processes than its limit"
    found = [
        Boundary(processes, (Attempt(Means.PROCESSES, amount=2 * runtime.pids),), fixes.limits),
        Boundary(memory, (Attempt(Means.MEMORY, amount=2 * runtime.memory_bytes),), fixes.limits),
    ]
    if psutil.virtual_memory().available < _SPARE_MEMORY_BYTES:
        found[1] = Boundary(memory, (), fixes.limits, "less than 1 GB of this machine's memory is free", "free some")
    if not own_user_namespaces:
        found.insert(0, Boundary("make a user namespace", (Attempt(Means.USER_NAMESPACE),), fixes.files))
    return found
