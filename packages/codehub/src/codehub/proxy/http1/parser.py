"""Parses HTTP/1.1 heads strictly: messages that two parsers could read differently are rejected before anything is
forwarded.

Header lines without meaning for a proxy are kept as received. Knows nothing about workspaces, CodeHub's cookies or
connections.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from codehub.proxy.http1.messages import BadMessage, RequestFields, RequestHead, ResponseHead

MAX_HEAD: Final = 64 * 1024  # browsers stop at about 8 KB, IDEs with many cookies at 16
MAX_HEADERS: Final = 200


class Kind(IntEnum):
    """How the proxy treats a header. PLAIN is forwarded unchanged; DROP is never forwarded."""

    PLAIN = 0
    DROP = 1
    HOST = 2
    CONNECTION = 3
    CONTENT_LENGTH = 4
    TRANSFER_ENCODING = 5
    UPGRADE = 6
    COOKIE = 7
    AUTHORIZATION = 8
    ORIGIN = 9
    TE = 10
    FORWARDED_FOR = 11
    FORWARDED_PROTO = 12
    FORWARDED_HOST = 13
    FETCH_MODE = 14
    FETCH_DEST = 15
    PURPOSE = 16
    ACCEPT = 17
    SET_COOKIE = 18
    LOCATION = 19
    EXPECT = 20
    FETCH_SITE = 21


_REQUEST_KINDS: Final[dict[bytes, Kind]] = {
    b"host": Kind.HOST,
    b"connection": Kind.CONNECTION,
    b"content-length": Kind.CONTENT_LENGTH,
    b"transfer-encoding": Kind.TRANSFER_ENCODING,
    b"upgrade": Kind.UPGRADE,
    b"cookie": Kind.COOKIE,
    b"authorization": Kind.AUTHORIZATION,
    b"origin": Kind.ORIGIN,
    b"te": Kind.TE,
    b"expect": Kind.EXPECT,
    b"x-forwarded-for": Kind.FORWARDED_FOR,
    b"x-forwarded-proto": Kind.FORWARDED_PROTO,
    b"x-forwarded-host": Kind.FORWARDED_HOST,
    b"x-forwarded-prefix": Kind.DROP,
    b"x-forwarded-port": Kind.DROP,
    b"x-forwarded-server": Kind.DROP,
    b"x-real-ip": Kind.DROP,
    b"x-codehub-proxy-secret": Kind.DROP,
    b"x-codehub-session-key": Kind.DROP,
    b"forwarded": Kind.DROP,
    b"keep-alive": Kind.DROP,
    b"proxy-connection": Kind.DROP,
    b"proxy-authorization": Kind.DROP,
    b"http2-settings": Kind.DROP,
    b"sec-fetch-mode": Kind.FETCH_MODE,
    b"sec-fetch-dest": Kind.FETCH_DEST,
    b"sec-fetch-site": Kind.FETCH_SITE,
    b"sec-purpose": Kind.PURPOSE,
    b"accept": Kind.ACCEPT,
}
_RESPONSE_KINDS: Final[dict[bytes, Kind]] = {
    b"connection": Kind.CONNECTION,
    b"content-length": Kind.CONTENT_LENGTH,
    b"transfer-encoding": Kind.TRANSFER_ENCODING,
    b"upgrade": Kind.UPGRADE,
    b"set-cookie": Kind.SET_COOKIE,
    b"location": Kind.LOCATION,
    b"keep-alive": Kind.DROP,
    b"proxy-connection": Kind.DROP,
    b"proxy-authenticate": Kind.DROP,
    b"service-worker-allowed": Kind.DROP,
    # They hold for a whole host or domain, on which the dashboard and other workspaces are too.
    b"clear-site-data": Kind.DROP,
    b"strict-transport-security": Kind.DROP,
    b"alt-svc": Kind.DROP,
    b"nel": Kind.DROP,
    b"report-to": Kind.DROP,
}
# A trailer with one of these would change what was decided from the head.
FORBIDDEN_TRAILERS: Final = frozenset(_REQUEST_KINDS) - {b"accept", b"sec-purpose"} | frozenset(
    {b"set-cookie", b"location", b"trailer", b"content-encoding", b"content-type", b"content-range"}
)

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# The longest name that DNS knows: hosts are keys of a cache.
_HOST: Final = re.compile(rb"[A-Za-z0-9.\-_]{1,255}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?", re.DOTALL)
_CONTROLS: Final = bytes(c for c in (*range(32), 127) if c not in (9, 10, 13))
_USUAL: Final = frozenset({b"close", b"keep-alive", b"upgrade"})
_PLAIN: Final = Kind.PLAIN
_DROP: Final = Kind.DROP
# Checked spellings of names. Bounded, because a client could send any number of them.
_MAX_SPELLINGS: Final = 4096
_MAX_SPELLING: Final = 64
_request_spellings: dict[bytes, Kind] = {}
_response_spellings: dict[bytes, Kind] = {}


def parse_request(head: bytes) -> RequestHead:
    """`head` is everything before the empty line, without the CRLF of its last line. Raises BadMessage."""
    lines = _lines(head, 400)
    try:
        method, target, version = lines[0].split(b" ")
    except ValueError:
        raise BadMessage(400, "the request line is not METHOD TARGET VERSION") from None
    if version == b"HTTP/1.1":
        minor = 1
    elif version == b"HTTP/1.0":
        minor = 0
    elif version[:5] == b"HTTP/":
        raise BadMessage(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    else:
        raise BadMessage(400, "the request line does not end in an HTTP version")
    if not _TOKEN.fullmatch(method):
        raise BadMessage(400, "the method is not a token")
    if not target or b"\t" in target:
        raise BadMessage(400, "the request line has no target, or one with a space in it")
    fields = RequestFields()
    spellings = _request_spellings
    keep = fields.lines
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        kind = spellings.get(name)
        if kind is None:
            kind = _classify(name, _REQUEST_KINDS, spellings, 400)
        if not colon:
            raise BadMessage(400, "a header line has no colon")
        if kind is _PLAIN:
            keep.append(line)
        elif kind is not _DROP:
            _take(fields, kind, value.strip(b" \t"), line)
    if minor == 1 and not fields.host:
        raise BadMessage(400, "there is no Host")
    if fields.chunked and minor == 0:
        raise BadMessage(400, "HTTP/1.0 has no Transfer-Encoding")
    if fields.chunked and fields.content_length >= 0:
        raise BadMessage(400, "Content-Length and Transfer-Encoding exclude each other")
    return RequestHead(method, target, minor, fields)


def parse_response(head: bytes) -> ResponseHead:
    """Like `parse_request`, for an upstream's answer. Raises BadMessage with 502."""
    lines = _lines(head, 502)
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise BadMessage(502, "the upstream's status line is malformed")
    response = ResponseHead(int(match[2]), match[3] or b"", int(match[1]))
    spellings = _response_spellings
    keep = response.lines
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        kind = spellings.get(name)
        if kind is None:
            kind = _classify(name, _RESPONSE_KINDS, spellings, 502)
        if not colon:
            raise BadMessage(502, "a header line of the upstream has no colon")
        if kind is _PLAIN:
            keep.append(line)
        elif kind is not _DROP:
            _take_response(response, kind, value.strip(b" \t"))
    if response.chunked and response.content_length >= 0:
        raise BadMessage(502, "the upstream gave both a Content-Length and a Transfer-Encoding")
    return response


def _lines(head: bytes, status: int) -> list[bytes]:
    lines = head.split(b"\r\n")
    ends = len(lines) - 1
    if ends > MAX_HEADERS:
        raise BadMessage(431 if status == 400 else status, f"more than {MAX_HEADERS} headers")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        raise BadMessage(status, "a line does not end in CRLF")
    if len(head.translate(None, _CONTROLS)) != len(head):
        raise BadMessage(status, "there is a control character in the head")
    return lines


def _classify(name: bytes, kinds: dict[bytes, Kind], spellings: dict[bytes, Kind], status: int) -> Kind:
    if not _TOKEN.fullmatch(name):
        # Also covers a folded line (it begins with a space) and a space before the colon.
        raise BadMessage(status, "a header's name is not a token")
    lowered = name.lower()
    kind = kinds.get(lowered, Kind.PLAIN)
    if b"_" in lowered and lowered.replace(b"_", b"-") in kinds:
        # CGI-like servers read it as the name with dashes, which a client must not forge.
        kind = Kind.DROP
    if len(spellings) < _MAX_SPELLINGS and len(name) <= _MAX_SPELLING:
        spellings[name] = kind
    return kind


def _take(fields: RequestFields, kind: Kind, value: bytes, line: bytes) -> None:
    if kind is Kind.HOST:
        if fields.host:
            raise BadMessage(400, "there is more than one Host")
        if not _HOST.fullmatch(value):
            raise BadMessage(400, "Host is malformed")
        fields.host = value
    elif kind is Kind.CONNECTION:
        fields.connection = fields.connection + b"," + value.lower() if fields.connection else value.lower()
        if b"close" in fields.connection:
            fields.keep_alive = False
        elif b"keep-alive" in fields.connection:
            fields.keep_alive = True
    elif kind is Kind.COOKIE:
        fields.cookie = fields.cookie + b"; " + value if fields.cookie else value
    elif kind is Kind.ACCEPT:
        fields.accept = value
        fields.lines.append(line)
    elif kind is Kind.FETCH_MODE:
        fields.fetch_mode = value
        fields.lines.append(line)
    elif kind is Kind.FETCH_DEST:
        fields.fetch_dest = value
        fields.lines.append(line)
    elif kind is Kind.FETCH_SITE:
        fields.fetch_site = value
        fields.lines.append(line)
    elif kind is Kind.CONTENT_LENGTH:
        if fields.content_length >= 0:
            raise BadMessage(400, "there is more than one Content-Length")
        fields.content_length = _length(value, 400)
    elif kind is Kind.TRANSFER_ENCODING:
        if fields.chunked or value.lower() != b"chunked":
            raise BadMessage(501 if not fields.chunked else 400, "the only Transfer-Encoding is chunked, once")
        fields.chunked = True
    elif kind is Kind.ORIGIN:
        if fields.origin:
            raise BadMessage(400, "there is more than one Origin")
        fields.origin = value or b"null"
        fields.lines.append(line)
    elif kind is Kind.AUTHORIZATION:
        if fields.authorization:
            raise BadMessage(400, "there is more than one Authorization")
        fields.authorization = value
    elif kind is Kind.UPGRADE:
        fields.upgrade = fields.upgrade + b", " + value if fields.upgrade else value
    elif kind is Kind.EXPECT:
        if value.lower() != b"100-continue":
            raise BadMessage(417, "the only Expect is 100-continue")
        fields.expect_continue = True
        fields.lines.append(line)
    elif kind is Kind.TE:
        fields.te_trailers = fields.te_trailers or b"trailers" in value.lower()
    else:
        _take_rare(fields, kind, value, line)


def _take_rare(fields: RequestFields, kind: Kind, value: bytes, line: bytes) -> None:
    if kind is Kind.FORWARDED_FOR:
        fields.forwarded_for = fields.forwarded_for + b", " + value if fields.forwarded_for else value
    elif kind is Kind.FORWARDED_PROTO:
        fields.forwarded_proto = value.lower()
    elif kind is Kind.FORWARDED_HOST:
        fields.forwarded_host = value
    elif kind is Kind.PURPOSE:
        fields.purpose = value
        fields.lines.append(line)


def _take_response(response: ResponseHead, kind: Kind, value: bytes) -> None:
    if kind is Kind.CONTENT_LENGTH:
        length = _length(value, 502)
        if response.content_length >= 0 and response.content_length != length:
            raise BadMessage(502, "the upstream gave two lengths")
        response.content_length = length
    elif kind is Kind.SET_COOKIE:
        response.cookies.append(value)
    elif kind is Kind.LOCATION:
        response.location = value
    elif kind is Kind.CONNECTION:
        words = value.lower()
        if b"close" in words:
            response.close = True
        elif b"keep-alive" in words:
            response.close = False
        if words not in _USUAL:
            response.connection += b"," + words
    elif kind is Kind.TRANSFER_ENCODING:
        if response.chunked or value.lower() != b"chunked":
            raise BadMessage(502, "the upstream's Transfer-Encoding is not chunked")
        response.chunked = True
    elif kind is Kind.UPGRADE:
        response.upgrade = value


def _length(value: bytes, status: int) -> int:
    if not _DIGITS.fullmatch(value):
        raise BadMessage(status, "Content-Length is not a number")
    return int(value)
