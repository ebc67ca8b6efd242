"""The page's files, read once from this module's folder, and the small page that signs a browser in.

The daemon serves everything itself: the page works without a network, and its policy allows it to load nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Final

from sari.web.http1 import Response

_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES: Final = {
    "/": "index.html",
    "/style.css": "style.css",
    "/icon.svg": "icon.svg",
    "/app.js": "app.js",
    "/api.js": "api.js",
    "/dom.js": "dom.js",
    "/highlight.js": "highlight.js",
    "/results.js": "results.js",
    "/viewer.js": "viewer.js",
    "/status.js": "status.js",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'{script}; style-src 'self'{style}; img-src 'self'{image}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def has(path: str) -> bool:
    return path in _FILES


def asset(path: str) -> Response:
    name = _FILES[path]
    kind = _TYPES[name[name.rindex(".") :]]
    headers = (
        {"Content-Security-Policy": _POLICY.format(script="", style="", image="")} if name.endswith(".html") else {}
    )
    return Response(200, _read(name), f"{kind}; charset=utf-8", headers)


def sign_in_page() -> Response:
    """Return the page for a browser without a cookie. It exchanges the key in the URL (after #, so never sent or
    logged) for one.

    It is self-contained, so that nothing else is served to a client that is not signed in.
    """
    body = _read("signin.html")
    policy = _POLICY.format(
        script=" " + _hash_of(body, b"script"), style=" " + _hash_of(body, b"style"), image=" data:"
    )
    return Response(401, body, "text/html; charset=utf-8", {"Content-Security-Policy": policy})


def _hash_of(body: bytes, element: bytes) -> str:
    """Return the policy's source expression for exactly the one inline element of this kind."""
    inside = body.partition(b"<" + element + b">")[2].partition(b"</" + element + b">")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'"


@cache
def _read(name: str) -> bytes:
    return resources.files("sari.web").joinpath("assets", name).read_bytes()
