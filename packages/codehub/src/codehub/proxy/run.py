"""The workspace proxy: `run_proxy` assembles the parts, listens, and runs until cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_network

import structlog

from codehub.adapters.front_socket import listen_front
from codehub.domain.connection_cap import most_per_address
from codehub.domain.doors import widest_share
from codehub.domain.effective import effective_profile
from codehub.domain.errors import CodeHubError, Invalid
from codehub.domain.limits import RunningLimits
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile, Catalog
from codehub.domain.ttl import shortest_standby_ttl
from codehub.ports.activity import ActivityStore
from codehub.ports.instances import Instances, Upstream
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.addresses import Addresses
from codehub.proxy.admission.controller import AdmissionController
from codehub.proxy.admission.revocation import Revocation
from codehub.proxy.admission.targets import Targets
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.http1.headers import WORKSPACE_COOKIE
from codehub.proxy.local_endpoints import LocalEndpoints
from codehub.proxy.server import ProxyServer
from codehub.services.audit import Visits
from codehub.services.database import Database
from codehub.services.workspace_access import WorkspaceAccess
from codehub.settings import Settings

_log = structlog.get_logger()

# The first socket that a service manager passes (LISTEN_FDS). With it, a restart loses no queued connection.
_FIRST_PASSED = 3
# Allocations between two collections. An exchange leaves no cycles, so there is little to collect.
_COLLECT_AFTER = 20_000


@dataclass(frozen=True, slots=True)
class ProxyDeps:
    database: Database
    activity: ActivityStore
    instances: Mapping[str, Instances]  # by the name in `workspaces.instance_backend`
    catalog: Catalog
    now: Callable[[], datetime]


async def run_proxy(
    settings: Settings,
    deps: ProxyDeps,
    *,
    sockets: list[socket.socket] | None = None,
    ready: Callable[[], None] = lambda: None,
    grace_s: float = 10.0,
) -> None:
    """Serve until cancelled, then shut down gracefully within slightly more than `grace_s`."""
    loop = asyncio.get_running_loop()
    clock = CoarseClock(loop.time, time.time)
    buffer = ActivityBuffer(
        deps.activity,
        clock,
        flush_interval_s=settings.flush_interval_s,
        shortest_ttl_s=shortest_standby_ttl(timedelta(seconds=settings.ttl_standby_s)).total_seconds(),
    )
    access = WorkspaceAccess(
        deps.database,
        RunningLimits(settings.max_running_per_user, settings.max_running_global),
        deps.now,
        Visits(deps.now),
        widest_share(settings.port_sharing, settings.workspace_host),
    )
    addresses = Addresses(settings.public_url, settings.workspace_url, settings.workspace_host)
    scheme = b"https" if addresses.secure else b"http"

    async def resolve(backend: str, workspace_id: str, helper: bool) -> Upstream | None:
        instances = deps.instances.get(backend)
        if instances is None:
            return None
        if helper:
            return (await instances.status(workspace_id)).workspaced
        return await instances.resolve_upstream(workspace_id)

    def profile_of(workspace: Workspace) -> AppProfile:
        try:
            return effective_profile(workspace, deps.catalog, deps.instances[workspace.instance_backend].runs)[1]
        except (Invalid, KeyError):
            # An image that was allowed before and still runs: it is proxied like the default profile.
            return deps.catalog.profiles[deps.catalog.default]

    targets = Targets(resolve, profile_of, buffer, clock, scheme)
    admission = AdmissionController(access, targets, addresses, clock)
    door = LocalEndpoints(settings.public_url, settings.workspace_host, admission.away)
    server = ProxyServer(
        admission,
        door,
        clock,
        workspace_cookie=addresses.cookie(WORKSPACE_COOKIE),
        trusted=tuple(ip_network(network, strict=False) for network in settings.trusted_proxies),
        grace_s=grace_s,
        most_per_address=most_per_address(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    door.server = server
    server.on_tick += [targets.sweep, admission.sweep]
    server.on_stop += [admission.close, targets.close]
    listeners = sockets or passed_sockets() or [listen(settings.proxy_bind)]
    if settings.proxy_socket is not None:
        listeners = [*listeners, listen_front(settings.proxy_socket, "CODEHUB_PROXY_SOCKET")]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(buffer.run(), name="activity")
            group.create_task(Revocation(server, access, admission).run(), name="revocation")
            group.create_task(server.run(listeners, ready), name="listener")
    finally:
        try:
            async with asyncio.timeout(5):
                await buffer.flush()
        except (CodeHubError, TimeoutError) as error:
            _log.warning("the last activity could not be brought to its store", error=str(error))


def settle_memory() -> None:
    """Exclude objects created at startup from garbage collection, so that no collection traverses them while requests wait.

    For dedicated proxy processes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


def listen(bind: str) -> socket.socket:
    """Open a listening socket that other replicas on this machine may share (SO_REUSEPORT). Raises OSError."""
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, int(port)))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def passed_sockets() -> list[socket.socket]:
    """Return the sockets that a service manager passed to this process."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = int(os.environ.get("LISTEN_FDS", "0"))
    return [socket.socket(fileno=fd) for fd in range(_FIRST_PASSED, _FIRST_PASSED + count)]
