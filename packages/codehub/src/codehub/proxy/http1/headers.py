"""Rewrites heads: what is added, dropped and mapped in each direction.

CodeHub's own cookies and tokens never reach the workspace. Responses can neither set CodeHub's cookies nor lead out of the
workspace by accident.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from codehub.domain.cookies import MAX_OF_ONE_NAME
from codehub.proxy.http1.messages import RequestHead, ResponseHead

TOKEN_PREFIX: Final = b"cht_"
WORKSPACE_COOKIE: Final = b"codehub_ws"
NONCE_COOKIE: Final = b"codehub_nonce"
LINK_NAME: Final = b"codehub_link"  # a query parameter, then a cookie: opens a shared port
TICKET_PARAMETER: Final = b"codehub_ticket"
OWN_PARAMETERS: Final = b"codehub_"  # how the names of both begin
OWN_PATH: Final = b"_codehub/"  # below a workspace's address; belongs to the proxy
PORT_PATH: Final = b"port/"  # below a workspace's address: the pages of its ports
ALLOW_CREDENTIALS: Final = b"Access-Control-Allow-Credentials: true"
HOST_PREFIX: Final = b"__Host-"  # browsers accept such a cookie from its own host and https only
_OUR_PREFIX: Final = b"codehub_"
_OUR_NAMES: Final = frozenset({b"session", b"__host-session"})
# Headers that `Connection: name` must not remove: that would change the meaning of the message.
_NOT_HOP_BY_HOP: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"te", b"cookie"})
_USUAL_CONNECTION: Final = frozenset(
    {b"", b"keep-alive", b"close", b"upgrade", b"keep-alive, upgrade", b"upgrade, keep-alive"}
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OWN_ADDRESS: Final = re.compile(rb"(?:https?:)?//([^/?#]*)(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PathRewrite:
    """Maps one workspace's addresses to its IDE's. `prefix` is the workspace's path without the trailing slash."""

    prefix: bytes
    strip: bool
    secret: tuple[bytes, bytes] | None = None  # a header the instance requires, name in lower case
    scheme: bytes = b"http"
    learns: bool = False  # detects and keeps the prefix for applications configured with it


def is_ours(cookie_name: bytes) -> bool:
    name = cookie_name.lower()
    return name.removeprefix(HOST_PREFIX.lower()).startswith(_OUR_PREFIX) or name in _OUR_NAMES


def split_cookies(header: bytes, wanted: bytes = WORKSPACE_COOKIE) -> tuple[list[bytes], list[bytes]]:
    """Return (the values of the `wanted` cookie, the workspace's own cookie pairs)."""
    ours: list[bytes] = []
    theirs: list[bytes] = []
    for pair in header.split(b";"):
        pair = pair.strip(b" \t")
        name, _, value = pair.partition(b"=")
        name = name.rstrip(b" \t")
        if name == wanted:
            ours.append(value.strip(b' \t"'))
        elif pair and not is_ours(name):
            theirs.append(pair)
    return ours[:MAX_OF_ONE_NAME], theirs


def bearer_token(authorization: bytes) -> bytes:
    """Return the API token of an Authorization header; empty if there is none."""
    scheme, _, value = authorization.partition(b" ")
    value = value.strip(b" \t")
    return value if scheme.lower() == b"bearer" and value.startswith(TOKEN_PREFIX) else b""


def request_bytes(
    request: RequestHead, rewrite: PathRewrite, cookies: list[bytes], forwarded_for: bytes, *, upgrade: bool
) -> bytes:
    """Return the head as sent to the instance."""
    target, secret = request.target, rewrite.secret
    if secret is not None and secret[0] == b"cookie":
        # The secret is one cookie among the workspace's own; the browser cannot send another with its name.
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
    """HTTP/2 is never tunnelled: requests inside it would bypass the checks."""
    fields = request.fields
    return bool(fields.upgrade) and b"upgrade" in fields.connection and b"h2c" not in fields.upgrade.lower()


def response_lines(response: ResponseHead, rewrite: PathRewrite, host: bytes) -> list[bytes]:
    """Return status line and headers as sent to the browser, without the framing headers."""
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


def allow_origin(lines: list[bytes], origin: bytes) -> list[bytes]:
    """Let a page of another port of the same workspace read a response, unless the application names who may."""
    allowed = header_value(lines[1:], b"access-control-allow-origin")
    if allowed not in (b"", b"*"):
        return lines
    kept = _without(lines[1:], {b"access-control-allow-origin", b"access-control-allow-credentials"})
    return [lines[0], *kept, b"Access-Control-Allow-Origin: " + origin, ALLOW_CREDENTIALS, b"Vary: Origin"]


def header_value(lines: list[bytes], name: bytes) -> bytes:
    """Return the value of the first header with this lower-case name; empty if there is none."""
    for line in lines:
        found, _, value = line.partition(b":")
        if found.lower() == name:
            return value.strip(b" \t")
    return b""


def wants_prefix(response: ResponseHead, rewrite: PathRewrite, target: bytes) -> bool:
    """Return whether an application redirects to the requested address itself.

    It then has the prefix in its own paths (such as Vite's `base`), and removing the prefix would cause a redirect loop.
    """
    return (
        rewrite.learns
        and rewrite.strip
        and response.status in _REDIRECTS
        and not response.cookies
        and response.location == target
    )


def as_location(path: bytes) -> bytes:
    """Return a path as a Location. Behind two slashes browsers read another host, and take a backslash for a slash."""
    return b"/." + path if path[1:2] in (b"/", b"\\") else path


def map_location(location: bytes, rewrite: PathRewrite, host: bytes) -> bytes:
    """Keep an address of this workspace inside it; leave other addresses unchanged."""
    own = _OWN_ADDRESS.fullmatch(location)
    if own is not None:
        if own[1].lower() != host.lower():
            return location
        location = as_location(own[2] or b"/")
    if not location.startswith(b"/"):
        return location
    if location == rewrite.prefix or location.startswith((rewrite.prefix + b"/", rewrite.prefix + b"?")):
        return location
    return rewrite.prefix + location


def map_cookie(cookie: bytes, rewrite: PathRewrite) -> bytes:
    """Restrict a Set-Cookie to the workspace. Returns nothing if it would set one of CodeHub's cookies."""
    first, *attributes = (part.strip(b" \t") for part in cookie.split(b";"))
    name = first.partition(b"=")[0].strip(b" \t")
    # Browsers send a nameless cookie "=codehub_ws=x" back as "codehub_ws=x".
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
