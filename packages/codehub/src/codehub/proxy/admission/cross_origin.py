"""Requests from other origins: pages on the ports of one workspace may call each other, all others may not. No I/O."""

from __future__ import annotations

from typing import Final

from codehub.domain.doors import is_sibling_port
from codehub.proxy.admission.decision import Reply
from codehub.proxy.admission.request_context import RequestContext, is_from_sibling
from codehub.proxy.http1.headers import ALLOW_CREDENTIALS, header_value
from codehub.proxy.http1.messages import RequestHead

_METHOD: Final = b"access-control-request-method"
_HEADERS: Final = b"access-control-request-headers"
# How long browsers keep an answer to a preflight.
_MAX_AGE: Final = b"600"


def is_own_origin(context: RequestContext, own: str) -> bool:
    """Return whether a request comes from its own origin, from another port of the workspace, or from no page."""
    sent = context.request.fields.origin
    return not sent or sent == own.encode() or _is_sibling(context, own)


def answer_preflight(context: RequestContext, own: str) -> Reply | None:
    """Allow what a page of another port of the workspace asks for.

    Browsers send preflights without cookies, so the application cannot be asked. The request itself is checked.
    """
    request = context.request
    method = header_value(request.fields.lines, _METHOD) if request.method == b"OPTIONS" else b""
    if not method or context.cookies or context.token or not _is_sibling(context, own):
        return None
    name, _, value = ALLOW_CREDENTIALS.partition(b": ")
    headers = [
        (b"Access-Control-Allow-Origin", request.fields.origin),
        (name, value),
        (b"Access-Control-Allow-Methods", method),
        (b"Access-Control-Max-Age", _MAX_AGE),
        (b"Vary", b"Origin"),
    ]
    if wanted := header_value(request.fields.lines, _HEADERS):
        headers.append((b"Access-Control-Allow-Headers", wanted))
    return Reply(200, headers=tuple(headers))


def is_foreign_sibling(request: RequestHead, own: bytes, *, own_host: bool) -> bool:
    """Return whether a page on another host of our site loads or embeds this, and is no page of the same workspace's ports.

    Unlike other sites' requests, those of our site carry cookies. Requests without CORS have no Origin; the Referer says
    where they come from, and a page that hides it is not known.
    """
    if not is_from_sibling(request):
        return False
    sender = request.fields.origin.decode("latin-1") or _origin_of(header_value(request.fields.lines, b"referer"))
    return not own_host or not is_sibling_port(sender, own.decode())


def _origin_of(address: bytes) -> str:
    scheme, _, rest = address.decode("latin-1").partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _is_sibling(context: RequestContext, own: str) -> bool:
    return context.door.own_host and is_sibling_port(context.request.fields.origin.decode("latin-1"), own)
