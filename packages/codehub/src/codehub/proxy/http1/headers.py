"""Heads on their way through: what is added, dropped and mapped in each direction.

Towards the workspace nothing of ours goes (cookies, tokens); towards the browser nothing comes that could set our
cookies or lead out of the workspace by accident.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from codehub.proxy.http1.messages import RequestHead, ResponseHead

TOKEN_PREFIX: Final = b"cht_"
WORKSPACE_COOKIE: Final = b"codehub_ws"
NONCE_COOKIE: Final = b"codehub_nonce"
LINK_NAME: Final = b"codehub_link"  # a query's parameter, then a cookie: opens a shared port
TICKET_PARAMETER: Final = b"codehub_ticket"
OWN_PATH: Final = b"_codehub/"  # below a workspace's address, and ours
PORT_PATH: Final = b"port/"  # below a workspace's address: the pages of its ports
_OUR_PREFIX: Final = b"codehub_"
_OUR_NAMES: Final = frozenset({b"session", b"__host-session"})
# What `Connection: name` may not take away: it would change what the message is.
_NOT_HOP_BY_HOP: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"te", b"cookie"})
_USUAL_CONNECTION: Final = frozenset(
    {b"", b"keep-alive", b"close", b"upgrade", b"keep-alive, upgrade", b"upgrade, keep-alive"}
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OWN_ADDRESS: Final = re.compile(rb"(?:https?:)?//([^/?#]*)(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PathRewrite:
    """How one workspace's addresses relate to its IDE's. `prefix` is the workspace's path without the last slash."""

    prefix: bytes
    strip: bool
    secret: tuple[bytes, bytes] | None = None  # a header the instance demands, name in lower case
    scheme: bytes = b"http"
    learns: bool = False  # whether an application that was set up for the prefix is recognised and gets it


def is_ours(cookie_name: bytes) -> bool:
    name = cookie_name.lower()
    return name.startswith(_OUR_PREFIX) or name in _OUR_NAMES


def split_cookies(header: bytes) -> tuple[list[bytes], list[bytes]]:
    """(the values of `codehub_ws`, the pairs that are the workspace's)."""
    ours: list[bytes] = []
    theirs: list[bytes] = []
    for pair in header.split(b";"):
        pair = pair.strip(b" \t")
        name, _, value = pair.partition(b"=")
        name = name.rstrip(b" \t")
        if name == WORKSPACE_COOKIE:
            ours.append(value.strip(b' \t"'))
        elif pair and not is_ours(name):
            theirs.append(pair)
    return ours, theirs


def cookie_value(header: bytes, wanted: bytes) -> bytes:
    for pair in header.split(b";"):
        name, _, value = pair.strip(b" \t").partition(b"=")
        if name == wanted:
            return value
    return b""


def bearer_token(authorization: bytes) -> bytes:
    """Our API token in an Authorization, or nothing."""
    scheme, _, value = authorization.partition(b" ")
    value = value.strip(b" \t")
    return value if scheme.lower() == b"bearer" and value.startswith(TOKEN_PREFIX) else b""


def request_bytes(
    request: RequestHead, rewrite: PathRewrite, cookies: list[bytes], forwarded_for: bytes, *, upgrade: bool
) -> bytes:
    """The head as the instance gets it."""
    target, secret = request.target, rewrite.secret
    if secret is not None and secret[0] == b"cookie":
        # One cookie among the workspace's own, and the browser cannot send another of its name.
        name = secret[1].partition(b"=")[0]
        cookies, secret = [*(pair for pair in cookies if pair.partition(b"=")[0] != name), secret[1]], None
    if rewrite.strip:
        target = target[len(rewrite.prefix) :]
    lines = request.fields.lines
    if request.fields.connection not in _USUAL_CONNECTION:
        lines = _without(lines, _hop_by_hop(request.fields.connection))
    out = [
        b"%b %b HTTP/1.1" % (request.method, target),
        b"Host: " + request.fields.host,
        *lines,
        b"X-Forwarded-For: " + forwarded_for,
        b"X-Forwarded-Host: %b\r\nX-Forwarded-Proto: %b" % (request.fields.host, rewrite.scheme),
    ]
    if rewrite.prefix:
        out.append(b"X-Forwarded-Prefix: " + rewrite.prefix)
    if cookies:
        out.append(b"Cookie: " + b"; ".join(cookies))
    if request.fields.authorization and TOKEN_PREFIX not in request.fields.authorization:
        out.append(b"Authorization: " + request.fields.authorization)
    if secret is not None:
        out = [out[0], *_without(out[1:], {secret[0]}), b"%b: %b" % secret]
    if request.fields.chunked:
        out.append(b"Transfer-Encoding: chunked")
    elif request.fields.content_length >= 0:
        out.append(b"Content-Length: %d" % request.fields.content_length)
    if upgrade:
        out.append(b"Connection: Upgrade\r\nUpgrade: " + request.fields.upgrade)
    elif request.fields.te_trailers:
        out.append(b"Connection: TE\r\nTE: trailers")
    out.append(b"\r\n")
    return b"\r\n".join(out)


def wants_upgrade(request: RequestHead) -> bool:
    """HTTP/2 is never a tunnel: requests inside it would pass unseen."""
    fields = request.fields
    return bool(fields.upgrade) and b"upgrade" in fields.connection and b"h2c" not in fields.upgrade.lower()


def response_lines(response: ResponseHead, rewrite: PathRewrite, host: bytes) -> list[bytes]:
    """Status line and headers as the browser gets them, without the framing ones."""
    lines = response.lines
    if response.connection:
        lines = _without(lines, _hop_by_hop(response.connection))
    out = [b"HTTP/1.1 %d %b" % (response.status, response.reason), *lines]
    if response.location is not None:
        out.append(b"Location: " + map_location(response.location, rewrite, host))
    for cookie in response.cookies:
        mapped = map_cookie(cookie, rewrite)
        if mapped:
            out.append(b"Set-Cookie: " + mapped)
    return out


def wants_prefix(response: ResponseHead, rewrite: PathRewrite, target: bytes) -> bool:
    """Whether an application redirects to the very address that was asked for: it has the prefix in its own paths
    (Vite's `base`, for one), so taking it away would lead in circles."""
    return (
        rewrite.learns
        and rewrite.strip
        and response.status in _REDIRECTS
        and not response.cookies
        and response.location == target
    )


def map_location(location: bytes, rewrite: PathRewrite, host: bytes) -> bytes:
    """An address of this workspace stays in it; one of elsewhere stays as it is."""
    own = _OWN_ADDRESS.fullmatch(location)
    if own is not None:
        if own[1].lower() != host.lower():
            return location
        location = own[2] or b"/"
    if not location.startswith(b"/"):
        return location
    if location == rewrite.prefix or location.startswith((rewrite.prefix + b"/", rewrite.prefix + b"?")):
        return location
    return rewrite.prefix + location


def map_cookie(cookie: bytes, rewrite: PathRewrite) -> bytes:
    """A Set-Cookie kept inside the workspace, or nothing when it would set one of ours."""
    first, *attributes = (part.strip(b" \t") for part in cookie.split(b";"))
    name = first.partition(b"=")[0].strip(b" \t")
    # A nameless cookie "=codehub_ws=x" is sent back by browsers as "codehub_ws=x".
    if is_ours(name) or not name:
        return b""
    out = [first]
    path = b"/"
    for attribute in attributes:
        key, _, value = attribute.partition(b"=")
        key = key.strip(b" \t").lower()
        if key == b"path":
            path = value.strip(b' \t"')
        elif key != b"domain":
            out.append(attribute)
    if not path.startswith(b"/"):
        path = b"/"
    if path != rewrite.prefix and not path.startswith(rewrite.prefix + b"/"):
        path = rewrite.prefix + path
    out.append(b"Path=" + path)
    return b"; ".join(out)


def _hop_by_hop(connection: bytes) -> set[bytes]:
    return {word.strip(b" \t") for word in connection.split(b",")} - _NOT_HOP_BY_HOP


def _without(lines: list[bytes], names: set[bytes]) -> list[bytes]:
    return [line for line in lines if line.partition(b":")[0].lower() not in names]
