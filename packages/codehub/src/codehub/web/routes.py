"""Serves the dashboard: `/` and `/assets/{version}/…`. Files only; it knows nothing of sessions or workspaces."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from codehub.domain.errors import NotFound
from codehub.web.assets import Asset, assets

router = APIRouter(include_in_schema=False)

# Nothing but our own files runs, and nothing is ever made into markup from text (trusted types, with no policy allowed).
CONTENT_SECURITY_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",  # the terminal's page, as a panel
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_EVERY_TIME = "no-cache"
_LONGEST_QUERY = 4096


@router.get("/")
async def dashboard(request: Request) -> Response:
    """The one page; which view it shows is in the address's fragment, and never reaches the server."""
    found = assets()
    return _answer(request, found.index, f'W/"{found.version}"', _ASK_EVERY_TIME)


@router.get("/new")
async def open_in_codehub(request: Request) -> Response:
    """A link from elsewhere (“Open in CodeHub”) to the filled-in dialog. The sign-in comes first, and keeps the address."""
    query = request.url.query[:_LONGEST_QUERY]
    return Response(
        status_code=302, headers={**SECURITY_HEADERS, "Location": f"/#/new?{query}", "Cache-Control": "no-store"}
    )


@router.get("/assets/{version}/{path:path}")
async def asset(request: Request, version: str, path: str) -> Response:
    """A file. Another version's address (two releases side by side behind one balancer) gets ours, but may not keep it."""
    found = assets()
    if path not in found.files:
        raise NotFound(f"there is no file {path!r} in the dashboard")
    caching = _FOR_EVER if version == found.version else _ASK_EVERY_TIME
    return _answer(request, found.files[path], f'W/"{found.version}"', caching)


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    """Asked for by browsers that show an answer of ours which is no page."""
    found = assets()
    return _answer(request, found.files["icon.svg"], f'W/"{found.version}"', _ASK_EVERY_TIME)


def _answer(request: Request, file: Asset, etag: str, caching: str) -> Response:
    headers = {**SECURITY_HEADERS, "ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if etag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.gzipped, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)
