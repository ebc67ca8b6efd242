"""Determines a request's client address and host name. Forwarding headers are trusted only from a trusted proxy."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

from codehub.api.config import Network
from codehub.domain.connection_cap import UNIX_PEER

PROXY_SECRET = "x-codehub-proxy-secret"  # noqa: S105 - a header's name


def client_address(scope: Scope, headers: Headers, trusted: Sequence[Network], secret: str = "") -> str:
    """Return the last address in the chain that is not one of our trusted proxies."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not _is_trusted(peer, headers, trusted, secret):
        return str(peer)
    hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",") if hop.strip()]
    for hop in reversed(hops):
        address = _address(hop)
        if address is None:
            break
        peer = str(address)
        if not _trusted(peer, trusted):
            break
    return str(peer)


def requested_host(scope: Scope, headers: Headers, trusted: Sequence[Network], secret: str = "") -> str:
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = headers.get("x-forwarded-host", "") if _is_trusted(peer, headers, trusted, secret) else ""
    return (forwarded.split(",")[0].strip() or headers.get("host", "")).lower()


def _is_trusted(peer: str, headers: Headers, trusted: Sequence[Network], secret: str) -> bool:
    """Return whether the peer is our reverse proxy. On a Unix socket nobody else can connect, so it needs no secret."""
    return peer == UNIX_PEER or (_trusted(peer, trusted) and _authenticated(headers, secret))


def _authenticated(headers: Headers, secret: str) -> bool:
    """Other programs on a trusted proxy's machine have its address, but not its secret."""
    given = headers.get(PROXY_SECRET, "")
    return not secret or hmac.compare_digest(given.encode("latin-1", "replace"), secret.encode())


def _trusted(address: str, trusted: Sequence[Network]) -> bool:
    parsed = _address(address)
    return parsed is not None and any(parsed in network for network in trusted)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
