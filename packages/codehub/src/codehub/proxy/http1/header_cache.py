"""Caches header blocks by their bytes, with the parsed fields and the admission decision for each.

A browser sends the same headers repeatedly, and only the first line differs. Parsing, checking and rewriting them depends
only on their bytes, their sender and the admission, so it need not be repeated while that admission is fresh. A block that
does not match byte for byte takes the full path (`client`), and so does every request with a body or an upgrade.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from codehub.proxy.admission.decision import Admission
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.http1.headers import wants_upgrade
from codehub.proxy.http1.messages import RequestFields, RequestHead

MAX_BLOCK: Final = 4096  # a browser's block is about 1 KB
MAX_REPEATED: Final = 2 * MAX_BLOCK  # including the first line
MAX_BLOCKS: Final = 1024
# Methods that may be sent again on another connection, and targets that all parsers read the same way.
REQUEST_LINE: Final = re.compile(rb"(GET|HEAD|OPTIONS|PUT|DELETE) (/[!-~\x80-\xff]*) HTTP/1\.1").fullmatch


@dataclass(frozen=True, slots=True)
class CachedHeaders:
    """`prefix`: the required start of a target. `cut`: how much of it is removed. `rest`: the head after its first line."""

    fields: RequestFields
    cookies: list[bytes]
    admission: Admission
    peer: bytes
    prefix: bytes
    cut: int
    rest: bytes


class HeaderCache:
    """Every connection reads `known`; only `keep` writes it."""

    __slots__ = ("_clock", "known")

    def __init__(self, clock: CoarseClock) -> None:
        self._clock = clock
        self.known: dict[bytes, CachedHeaders] = {}

    def keep(
        self, block: bytes, request: RequestHead, admission: Admission, cookies: list[bytes], peer: bytes, sent: bytes
    ) -> None:
        """`block` is the head from the end of its first line on; `sent` is the complete head as sent upstream."""
        fields = request.fields
        if (
            len(block) > MAX_BLOCK
            or fields.has_body
            or fields.expect_continue
            or not request.keep_alive
            or request.minor != 1
            or wants_upgrade(request)
            # Whether a foreign origin may do this depends on the method, so it is checked every time.
            or (fields.origin and fields.origin != admission.origin)
            or admission.fresh_until < self._clock.now
        ):
            return
        if len(self.known) >= MAX_BLOCKS:
            self.known.clear()
        rewrite = admission.target.rewrite
        self.known[block] = CachedHeaders(
            fields,
            cookies,
            admission,
            peer,
            rewrite.prefix + b"/",
            len(rewrite.prefix) if rewrite.strip else 0,
            sent[sent.index(b"\r\n") :],
        )

    def sweep(self) -> None:
        now = self._clock.now
        for block in [block for block, cached in self.known.items() if cached.admission.fresh_until < now]:
            del self.known[block]
