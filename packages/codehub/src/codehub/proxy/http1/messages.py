"""Parsed message heads: the part shared by every request with the same headers, and the part of a single request.

Values only. `parser` creates them, `headers` maps them.
"""

from __future__ import annotations


class BadMessage(Exception):
    """Not a message that can be forwarded. `status` is sent to the client if the client caused it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class RequestFields:
    """A request's parsed headers. `lines` are forwarded unchanged. Shared, so never modified after parsing."""

    __slots__ = (
        "accept",
        "authorization",
        "chunked",
        "connection",
        "content_length",
        "cookie",
        "expect_continue",
        "fetch_dest",
        "fetch_mode",
        "fetch_site",
        "forwarded_for",
        "forwarded_host",
        "forwarded_proto",
        "host",
        "keep_alive",
        "lines",
        "origin",
        "purpose",
        "te_trailers",
        "upgrade",
    )

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.host = b""
        self.connection = b""
        self.keep_alive: bool | None = None  # None: the version decides
        self.upgrade = b""
        self.content_length = -1
        self.chunked = False
        self.cookie = b""
        self.authorization = b""
        self.origin = b""
        self.expect_continue = False
        self.te_trailers = False
        self.forwarded_for = b""
        self.forwarded_host = b""
        self.forwarded_proto = b""
        self.fetch_mode = b""
        self.fetch_dest = b""
        self.fetch_site = b""
        self.purpose = b""
        self.accept = b""

    @property
    def has_body(self) -> bool:
        return self.chunked or self.content_length > 0


class RequestHead:
    """One request: its line, its headers, and whether the connection stays open after it."""

    __slots__ = ("fields", "keep_alive", "method", "minor", "target")

    def __init__(self, method: bytes, target: bytes, minor: int, fields: RequestFields) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.fields = fields
        self.keep_alive = minor == 1 if fields.keep_alive is None else fields.keep_alive


class ResponseHead:
    __slots__ = (
        "chunked",
        "close",
        "connection",
        "content_length",
        "cookies",
        "lines",
        "location",
        "minor",
        "reason",
        "status",
        "upgrade",
    )

    def __init__(self, status: int, reason: bytes, minor: int) -> None:
        self.status = status
        self.reason = reason
        self.minor = minor
        self.lines: list[bytes] = []
        self.close = minor == 0
        self.connection = b""  # the names it lists besides the standard ones
        self.upgrade = b""
        self.content_length = -1
        self.chunked = False
        self.cookies: list[bytes] = []
        self.location: bytes | None = None
