"""GET requests to a registry that a repository named: to checked addresses only, bounded in time, size and redirects.

A host is resolved once, and the connection goes to the address that was checked. Private and loopback addresses are for
hosts that the administrator wrote out, link-local ones only if written as an address: there, clouds serve credentials.
A login goes to its registry and to where that registry has its tokens made, never to a host it redirects to.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import httpcore

from codehub.adapters.addresses import is_public, own_addresses, parse_address
from codehub.adapters.registry.logins import RegistryLogins
from codehub.adapters.registry.paced_stream import PacedStream
from codehub.domain.errors import Invalid, Unavailable

_MOST_REDIRECTS: Final = 3
_MOST_TOKEN: Final = 64 << 10
_MOST_AUTHORIZATIONS: Final = 64  # kept for the next request; a repository chooses for how many names
_STEP_TIMEOUT_S: Final = 20.0
_PORTS: Final = {"https": 443, "http": 80}
_LONGEST_CHALLENGE: Final = 4096  # headers may have 100 KB, and each letter could begin a parameter
_LONGEST_URL: Final = 8192  # storage services sign addresses of some kilobytes
_PARAMETER = re.compile(r'(?<![a-z])([a-z]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class RegistryHttp:
    """`named` are the administrator's `host[:port]`s. Without `tls`, the system's certificates count."""

    named: Collection[str] = ()
    tls: ssl.SSLContext | None = None
    logins: RegistryLogins = field(default_factory=RegistryLogins)
    _authorizations: dict[str, str] = field(default_factory=dict)

    def base(self, registry: str) -> str:
        """Return the registry's URL. Only loopback is reached without TLS, as container engines do."""
        return f"{'http' if _is_loopback(registry) else 'https'}://{registry}"

    async def get(self, registry: str, repository: str, path: str, accept: str, most: int) -> Answer:
        """GET a path of a repository, with a login or an anonymous token if the registry wants one. Raises CodeHubError."""
        url = f"{self.base(registry)}/v2/{repository}/{path}"
        scope = f"{registry}/{repository}"
        async with httpcore.AsyncConnectionPool(
            ssl_context=self.tls or ssl.create_default_context(),
            network_backend=_CheckedBackend(frozenset(self.named)),
            max_connections=1,
        ) as pool:
            for attempt in (1, 2):
                status, answer = await self._follow(pool, url, accept, self._authorizations.get(scope, ""), most)
                if status == 200:
                    return answer
                if status != 401 or attempt == 2:
                    break
                challenge = answer.headers.get("www-authenticate", "")
                authorization = await self._authorization(pool, registry, repository, challenge)
                if len(self._authorizations) >= _MOST_AUTHORIZATIONS:
                    self._authorizations.clear()
                self._authorizations[scope] = authorization
        self._authorizations.pop(scope, None)
        if status in (401, 403):
            raise Invalid(_denied(registry, repository, await asyncio.to_thread(self.logins.of, registry)))
        if status == 404:
            raise Invalid(f"{registry} has no {repository} ({path.rpartition('/')[2]})")
        raise Invalid(f"{registry} answered with the status {status}")

    async def _follow(
        self, pool: httpcore.AsyncConnectionPool, url: str, accept: str, authorization: str, most: int
    ) -> tuple[int, Answer]:
        first = _parts(url)
        for _ in range(_MOST_REDIRECTS + 1):
            headers: dict[bytes | str, bytes | str] = {"Accept": accept, "User-Agent": "codehub"}
            # A registry sends blobs from other hosts. What it is shown is for the registry alone.
            at_registry = _parts(url)[:2] == first[:2]
            if authorization and at_registry:
                headers["Authorization"] = authorization
            status, answer = await self._once(pool, url, headers, most)
            if status not in (301, 302, 303, 307, 308):
                if status == 401 and not at_registry:  # its challenge could name a server that collects logins
                    raise Invalid(f"{_parts(url).netloc}, to which {first.netloc} redirects, wants a login")
                return status, answer
            url = _joined(url, answer.headers.get("location", ""))
        raise Invalid(f"{first.netloc} redirects too often")

    async def _authorization(
        self, pool: httpcore.AsyncConnectionPool, registry: str, repository: str, challenge: str
    ) -> str:
        """Return the header that answers a registry's challenge."""
        kind, _, rest = challenge.partition(" ")
        parameters = dict(_PARAMETER.findall(rest)) if len(rest) <= _LONGEST_CHALLENGE else {}
        login = await asyncio.to_thread(self.logins.of, registry)
        if kind.lower() == "basic" and login:
            return f"Basic {login}"
        if kind.lower() != "bearer" or "realm" not in parameters:
            raise Invalid(_denied(registry, repository, login))
        query = {"service": parameters.get("service", ""), "scope": f"repository:{repository}:pull"}
        realm = parameters["realm"]
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        headers: dict[bytes | str, bytes | str] = {"User-Agent": "codehub"}
        if login:
            headers["Authorization"] = f"Basic {login}"
        status, answer = await self._once(pool, url, headers, _MOST_TOKEN)
        try:
            document = json.loads(answer.body) if status == 200 else {}
        except (ValueError, RecursionError):
            document = {}
        token = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Invalid(_denied(registry, repository, login))
        return f"Bearer {token}"

    async def _once(
        self, pool: httpcore.AsyncConnectionPool, url: str, headers: Mapping[bytes | str, bytes | str], most: int
    ) -> tuple[int, Answer]:
        self._check_scheme(url)
        where = _parts(url).netloc
        waits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), _STEP_TIMEOUT_S)}
        body = bytearray()
        try:
            async with pool.stream("GET", url, headers=headers, extensions=waits) as response:
                limit = most if response.status == 200 else _MOST_TOKEN
                async for part in response.aiter_stream():
                    body += part
                    if len(body) > limit:
                        raise Invalid(f"{where} sends more than {limit} bytes")
        except httpcore.TimeoutException:
            raise Unavailable(f"{where} does not answer") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
            if (untrusted := _untrusted(error)) is not None:
                raise Unavailable(
                    f"the certificate of {where} is not trusted: {untrusted.verify_message}. An administrator can name its "
                    "authority in CODEHUB_REGISTRY_CA_FILE"
                ) from error
            raise Unavailable(f"{where} cannot be reached: {error}") from error
        except UnicodeError as error:
            raise Invalid(f"{where} is not a valid address") from error
        found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return response.status, Answer(bytes(body), found)

    def _check_scheme(self, url: str) -> None:
        parts = _parts(url)
        if parts.username is not None or parts.password is not None:
            raise Invalid(f"{parts.hostname} answers with an address that contains a password")
        plain = parts.scheme == "http" and _is_loopback(parts.netloc) and parts.netloc.lower() in self.named
        if parts.scheme != "https" and not plain:
            raise Invalid(f"{parts.netloc or url} is not reached without TLS")


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, named: frozenset[str]) -> None:
        self._named = named
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError):
            raise httpcore.ConnectError(f"there is no host named {host}") from None
        addresses = [str(entry[4][0]) for entry in found]
        names = {f"{_bracketed(host)}:{port}", _bracketed(host) if port == _PORTS["https"] else ""}
        is_named = any(name.lower() in self._named for name in names)
        own = own_addresses()
        # One forbidden address is enough to refuse: an answer with both is no accident.
        if not addresses or not all(_may_connect(each, host, own, is_named) for each in addresses):
            raise Invalid(f"{host}:{port} has a private address, and no administrator allowed that host")
        return PacedStream(await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options))


def _may_connect(text: str, host: str, own: Collection[str], is_named: bool) -> bool:
    if not is_named:
        return is_public(text, own)
    address = parse_address(text)
    if address.is_multicast or address.is_unspecified:
        return False
    return not address.is_link_local or text == host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(netloc: str) -> bool:
    host = urlsplit(f"//{netloc}").hostname or ""
    if host == "localhost":
        return True
    try:
        return parse_address(host).is_loopback
    except ValueError:
        return False


def _parts(url: str) -> SplitResult:
    if len(url) > _LONGEST_URL:
        raise Invalid(f"an address of more than {_LONGEST_URL} characters is not followed")
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked when it is read
    except ValueError:
        raise Invalid(f"{url[:200]!r} is not a valid address") from None
    return parts


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise Invalid(f"{location[:200]!r} is not a valid address") from None


def _untrusted(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that a library's error is about."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, ssl.SSLCertVerificationError):
        at = at.__cause__ or at.__context__
    return at


def _denied(registry: str, repository: str, login: str) -> str:
    if login:
        return f"{registry} refuses the login of CODEHUB_REGISTRY_AUTH_FILE for {repository}"
    return f"{registry} gives no anonymous access to {repository}, and CODEHUB_REGISTRY_AUTH_FILE has no login for it"
