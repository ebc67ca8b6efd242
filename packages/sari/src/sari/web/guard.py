"""Access checks: Host and Origin against pages of other sites, the daemon's token against other users of the machine.

A browser signs in with a one-time key (made by `sari web` from the token) and keeps a cookie and a page key. Cookies
ignore ports: a browser sends this one to every listener of 127.0.0.1, of any user and any project. It therefore only
selects the page that is shown. Requests for data also need the page key, which the page keeps in the storage of its
origin. Keys, cookies and MCP session ids are signed with the token and hold no state, so they survive a hand-over to a
new daemon.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from sari.web.http1 import LARGEST_BODY, Rejected, Request

KEY_S: Final = 120
COOKIE_S: Final = 12 * 3600
PAGE_KEY_HEADER: Final = "x-sari-page-key"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MOST_USED: Final = 4096
_LARGEST_STRANGER_BODY: Final = 16 * 1024


def sign(token: str, purpose: str, name: str, until: int) -> str:
    """Return `name.until.mac`: a value that only a holder of the token can create, for one purpose."""
    text = f"{name}.{until}"
    mac = hmac.new(token.encode(), f"sari {purpose} {text}".encode(), hashlib.sha256).hexdigest()
    return f"{text}.{mac[:40]}"


def signed_name(token: str, purpose: str, value: str, now: float) -> str | None:
    """Return the name in a signed value, or None if it is forged or expired."""
    name, _, rest = value.partition(".")
    until, _, _ = rest.partition(".")
    if not (name.isalnum() and name.isascii() and until.isascii() and until.isdigit() and len(until) < 15):
        return None
    genuine = hmac.compare_digest(sign(token, purpose, name, int(until)).encode(), value.encode("utf-8", "replace"))
    return name if genuine and int(until) > now else None


def one_time_key(token: str, now: float) -> str:
    """Return the key that `sari web` puts into the URL that it opens."""
    return sign(token, "key", secrets.token_hex(8), int(now) + KEY_S)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `page` is the browser session's id, None for a holder of the token."""

    page: str | None


@dataclass(slots=True)
class Guard:
    """Runs the checks in order: Host, Origin, then the token, or a cookie with its page key."""

    token: str
    port: int
    clock: Callable[[], float] = time.time
    _used: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cookie(self) -> str:
        # Cookies ignore ports: two daemons on one machine must not overwrite each other's.
        return f"sari_{self.port}"

    def check_site(self, request: Request) -> None:
        """Refuse host names of other machines (DNS rebinding) and pages of other origins."""
        host = _name_of(request.headers.get("host", ""))
        if host not in _LOOPBACK:
            raise Rejected(421, "use 127.0.0.1 or localhost: sari serves this machine only")
        origin = request.headers.get("origin")
        if origin is not None and not self._own(origin, request.headers["host"]):
            raise Rejected(403, "pages of other sites may not call sari")
        navigating = request.method == "GET" and request.path == "/"
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not navigating:
            raise Rejected(403, "pages of other sites may not call sari")

    def _own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()

    def largest_body(self, headers: Mapping[str, str]) -> int:
        """Return the size of the body that a request may have: without access, that of a key to sign in."""
        return LARGEST_BODY if self.admit(headers) is not None else _LARGEST_STRANGER_BODY

    def admit(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller, or None if there is neither the token nor a cookie with its page key."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return Caller(None)
        name = self.page_of(headers)
        page_key = headers.get(PAGE_KEY_HEADER, "")
        fits = name is not None and signed_name(self.token, f"page {self.port}", page_key, self.clock()) == name
        return Caller(name) if fits else None

    def page_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the browser session that a cookie names. Not an access check: others can have the cookie."""
        value = _cookies(headers).get(self.cookie, "")
        return signed_name(self.token, f"cookie {self.port}", value, self.clock()) if value else None

    def sign_in(self, key: str) -> tuple[str, str] | None:
        """Return the cookie and the page key for a one-time key; None if that is forged, expired or already used."""
        now = self.clock()
        name = signed_name(self.token, "key", key, now)
        if name is None:
            return None
        with self._lock:
            self._used = {used: until for used, until in self._used.items() if until > now}
            if name in self._used or len(self._used) >= _MOST_USED:
                return None
            self._used[name] = now + KEY_S
        # For this port only: whoever listens on it after this daemon receives both.
        session, until = secrets.token_hex(16), int(now) + COOKIE_S
        value = sign(self.token, f"cookie {self.port}", session, until)
        cookie = f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_S}"
        return cookie, sign(self.token, f"page {self.port}", session, until)

    def sign_out(self) -> str:
        return f"{self.cookie}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"

    def new_session(self) -> str:
        """Return a new MCP session id. Its signature makes it valid for every daemon of this user."""
        return sign(self.token, "session", secrets.token_hex(16), int(self.clock()) + 30 * 86400)

    def own_session(self, session_id: str) -> bool:
        return signed_name(self.token, "session", session_id, self.clock()) is not None


def _name_of(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found
