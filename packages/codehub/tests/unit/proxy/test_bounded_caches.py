"""What clients and workspaces choose the names of does not fill the proxy's memory."""

from __future__ import annotations

from typing import cast

import pytest

from codehub.proxy.admission import cache
from codehub.proxy.admission.cache import AdmissionCache
from codehub.proxy.admission.decision import Admission, Target
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.http1 import parser
from codehub.proxy.http1.messages import BadMessage
from codehub.proxy.http1.parser import parse_request, parse_response


def test_long_names_of_headers_are_not_kept() -> None:
    names = [b"x%d-" % number + b"y" * 10_000 for number in range(20)]
    request = parse_request(b"GET / HTTP/1.1\r\nHost: h" + b"".join(b"\r\n%b: 1" % name for name in names))
    response = parse_response(b"HTTP/1.1 200 OK" + b"".join(b"\r\n%b: 1" % name for name in names))
    assert len(request.fields.lines) == len(response.lines) == 20
    kept = [*parser._request_spellings, *parser._response_spellings]
    assert max(map(len, kept)) <= 64


@pytest.mark.parametrize("host", [b"h" * 256, b"[" + b":" * 100 + b"]"], ids=["name", "address"])
def test_a_host_is_not_longer_than_a_name_can_be(host: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_request(b"GET / HTTP/1.1\r\nHost: " + host)


def test_admissions_beyond_the_limit_replace_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_REMEMBERED", 100)
    clock = CoarseClock(lambda: 5.0, lambda: 5.0)
    clock.tick()
    admissions = AdmissionCache(clock)
    ports = [(b"w/port/%d" % number, b"secret") for number in range(1000)]
    for port in ports:
        admissions.remember(Admission(port, cast(Target, None), b"", b"", 0.0))
    assert [port for port in ports if admissions.kept([port]) is not None] == ports[-100:]
