"""Serves the dashboard: `/` and `/assets/{version}/…`. Files only; it knows nothing about sessions or workspaces."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from codehub.domain.errors import NotFound
from codehub.web.assets import Asset, assets

router = APIRouter(include_in_schema=False)

SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
# Only our own files are executed, and text never becomes markup (trusted types, with no policy allowed).
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "frame-src 'self'",  # the terminal's page, as a panel
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_EVERY_TIME = "no-cache"
_LONGEST_QUERY = 4096


@router.get("/")
async def dashboard(request: Request) -> Response:
    """The only page. The URL's fragment selects the view and never reaches the server."""
    found = assets()
    return _answer(request, found.index, f'W/"{found.version}"', _ASK_EVERY_TIME)


@router.get("/new")
async def open_in_codehub(request: Request) -> Response:
    """Opens the filled-in dialog from an external link (“Open in CodeHub”).

    Signing in comes first, and keeps the address.
    """
    query = request.url.query[:_LONGEST_QUERY]
    headers = {**_security_headers(request), "Location": f"/#/new?{query}", "Cache-Control": "no-store"}
    return Response(status_code=302, headers=headers)


@router.get("/assets/{version}/{path:path}")
async def asset(request: Request, version: str, path: str) -> Response:
    """A file.

    The URL of another version (two releases behind one load balancer) gets this version's file, but may not be cached.
    """
    found = assets()
    if path not in found.files:
        raise NotFound(f"there is no file {path!r} in the dashboard")
    caching = _FOR_EVER if version == found.version else _ASK_EVERY_TIME
    return _answer(request, found.files[path], f'W/"{found.version}"', caching)


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    """Requested by browsers that show a response of ours that is not a page."""
    found = assets()
    return _answer(request, found.files["icon.svg"], f'W/"{found.version}"', _ASK_EVERY_TIME)


def _security_headers(request: Request) -> dict[str, str]:
    """`app.state.connect_sources` holds the other origins that the dashboard may call."""
    sources = " ".join(("'self'", *getattr(request.app.state, "connect_sources", ())))
    return {**SECURITY_HEADERS, "Content-Security-Policy": "; ".join((*_POLICY, f"connect-src {sources}"))}


def _answer(request: Request, file: Asset, etag: str, caching: str) -> Response:
    headers = {**_security_headers(request), "ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if etag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.gzipped, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)
