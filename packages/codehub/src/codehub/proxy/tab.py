"""The script that the proxy inserts into an IDE's pages (`static/tab.js`), and what the insertion looks like.

The script shows the workspace's name in the tab's title and an overlay while the workspace sleeps. It is inserted in front
of the page: a second doctype and a second `<head>` are ignored by every browser, so the page itself need not be parsed,
buffered or changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Final

from codehub.domain.profiles import AppProfile
from codehub.proxy.http1.messages import RequestHead, ResponseHead

SCRIPT_PATH: Final = "_codehub/tab.js"
WAKE_PATH: Final = "_codehub/wake"


@cache
def script() -> bytes:
    return files("codehub.proxy").joinpath("static/tab.js").read_bytes()


@dataclass(frozen=True, slots=True)
class TabScript:
    """`pages` are globs of the IDE's own paths, without the workspace's prefix."""

    insertion: bytes
    pages: tuple[str, ...]

    def is_for(self, request: RequestHead, prefix: bytes) -> bool:
        path = request.target[len(prefix) :].partition(b"?")[0].decode("latin-1")
        return request.method == b"GET" and request.minor == 1 and any(fnmatchcase(path, page) for page in self.pages)


def tab_script(profile: AppProfile, prefix: bytes) -> TabScript | None:
    """Return what to insert into the pages of a workspace's IDE, if its profile names any."""
    if not profile.pages:
        return None
    attributes = b' data-prefix="%b"' % prefix
    if profile.reload_after_wake:
        attributes += b' data-reload="1"'
    source = b"%b/%b" % (prefix, SCRIPT_PATH.encode())
    return TabScript(b'<!doctype html><script src="%b"%b></script>\n' % (source, attributes), profile.pages)


def is_document(request: RequestHead) -> bool:
    """Return whether a browser loads this as a page of its own, not in a frame and not from a script."""
    return request.fields.fetch_dest == b"document"


def without_encodings(lines: list[bytes]) -> list[bytes]:
    """Return the request's headers without Accept-Encoding: a compressed page cannot be inserted into."""
    return [line for line in lines if line[:16].lower() != b"accept-encoding:"]


def is_plain_page(response: ResponseHead) -> bool:
    """Return whether text can be put in front of this response's body."""
    if response.status != 200:
        return False
    html = False
    for line in response.lines:
        name, _, value = line.partition(b":")
        match name.lower():
            case b"content-type":
                html = value.strip().lower().startswith(b"text/html")
            case b"content-encoding" | b"content-range":
                return False
    return html
