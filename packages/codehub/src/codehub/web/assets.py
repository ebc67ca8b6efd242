"""The dashboard's files, read once, under one version: the hash of all of them.

The page refers to its modules by that version, and they import each other relatively, so a browser caches each version
indefinitely and never mixes two.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    gzipped: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    version: str
    index: Asset
    files: dict[str, Asset]


@cache
def assets() -> Assets:
    """Return all files as served."""
    found = dict(sorted(_walk(resources.files("codehub.web").joinpath("static"), "")))
    index = found.pop("index.html")
    version = _hash(b"".join(name.encode() + b"\0" + body for name, body in [*found.items(), ("index.html", index)]))
    # The terminal is a separate page, which few users open.
    modules = [name for name in found if name.endswith(".js") and not name.startswith("terminal/")]
    # Without a build step, the browser would discover the modules one import at a time. With preload hints it requests all
    # of them at once.
    hints = "\n".join(f'<link rel="modulepreload" href="assets/{version}/{name}">' for name in modules)
    page = index.decode().replace("<!-- PRELOAD -->", hints).replace("VERSION", version).encode()
    return Assets(version, _asset("index.html", page), {name: _asset(name, body) for name, body in found.items()})


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def _asset(name: str, body: bytes) -> Asset:
    suffix = name[name.rindex(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(body, gzip.compress(body, mtime=0), f"{kind}; charset=utf-8")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
