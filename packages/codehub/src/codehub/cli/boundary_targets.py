"""What `codehub doctor` attacks: where CodeHub's parts and this machine's services listen, and other workspaces."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

from codehub.adapters.probe_workspaces import Neighbour
from codehub.domain.boundaries import Attempt, Boundary, Means
from codehub.settings import Settings

_CONTROL_TIMEOUT_S = 2.0
_METADATA = ("169.254.169.254", "fd00:ec2::254")
_START = "start CodeHub (`codehub up`), then run `codehub doctor` again"


@dataclass(frozen=True, slots=True)
class Fixes:
    """What to do about a boundary that does not hold, on one runtime."""

    network: str
    files: str
    limits: str


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


async def parts(settings: Settings, fixes: Fixes, gateway: str, *, api: str = "", proxy: str = "") -> list[Boundary]:
    """CodeHub's own parts, each if it answers us: what does not answer anybody proves nothing.

    `api` and `proxy` are where they are reached if not on this machine.
    """
    found = []
    for name, where in (
        ("reach the API", lambda: bound_place(api or settings.api_bind)),
        ("reach the proxy", lambda: bound_place(proxy or settings.proxy_bind)),
        ("reach the database", lambda: database_place(settings.database_url)),
        ("reach Valkey", lambda: redis_place(settings.redis_url)),
    ):
        place = await asyncio.to_thread(_located, where)
        if place is None:
            found.append(Boundary(name, (), fixes.network, "it is not running, or its address is not known", _START))
        elif not await answers(place):
            found.append(Boundary(name, (), fixes.network, f"nothing answers on {place}", _START))
        else:
            found.append(Boundary(name, place.attempts(gateway), fixes.network))
    return found


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


async def answers(place: Place) -> bool:
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
async def bait(fixes: Fixes, gateway: str, *, also_gateway: bool) -> AsyncIterator[list[Boundary]]:
    """Services of this machine that answer everyone who can connect: on its loopback, and on its other addresses."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening: list[Boundary] = []
    async with contextlib.AsyncExitStack() as stack:
        for name, address in (
            ("reach this machine's loopback", "127.0.0.1"),
            ("reach this machine's network address", own_address()),
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


def own_address() -> str | None:
    found = (
        each.address for all_of in psutil.net_if_addrs().values() for each in all_of if each.family == socket.AF_INET
    )
    return next((address for address in found if not ip_address(address).is_loopback), None)


def neighbours(other: Neighbour, fixes: Fixes, gateway: str) -> list[Boundary]:
    ports = tuple(Attempt(Means.TCP, address, other.port) for address in ("127.0.0.1", other.address, gateway))
    abstract = (Attempt(Means.ABSTRACT, other.abstract),)
    return [
        Boundary("reach another workspace's ports", ports, fixes.network),
        Boundary("reach another workspace's abstract sockets", abstract, fixes.network),
        Boundary("reach another workspace's IDE", (Attempt(Means.UNIX, other.socket_path),), fixes.files),
    ]


def metadata(fixes: Fixes) -> Boundary:
    attempts = tuple(Attempt(Means.TCP, address, 80, answers=False) for address in _METADATA)
    return Boundary("reach cloud metadata", attempts, fixes.network, retry=fixes.network)
