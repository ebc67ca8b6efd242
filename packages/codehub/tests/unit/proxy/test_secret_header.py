"""The secret of a start on its way to the IDE: a header of its own, or one cookie among the workspace's."""

from __future__ import annotations

from codehub.adapters.health import secret_of
from codehub.domain.profiles import CODE_SERVER
from codehub.proxy.http1.headers import PathRewrite, request_bytes, split_cookies
from codehub.proxy.http1.parser import parse_request


def sent(secret: tuple[bytes, bytes], headers: bytes, cookies: list[bytes]) -> list[bytes]:
    request = parse_request(b"GET /w/x/a HTTP/1.1\r\nHost: h\r\n" + headers)
    rewrite = PathRewrite(b"/w/x", True, secret)
    return request_bytes(request, rewrite, cookies, b"1.2.3.4", upgrade=False).split(b"\r\n")


def test_a_cookie_joins_the_workspaces_own_and_replaces_what_the_browser_sent_by_its_name() -> None:
    _, theirs = split_cookies(b"theme=dark; code-server-session=guessed; codehub_ws=ours")
    lines = sent((b"cookie", b"code-server-session=right"), b"X-Other: 1", theirs)
    assert [line for line in lines if line.startswith(b"Cookie")] == [
        b"Cookie: theme=dark; code-server-session=right"
    ]


def test_another_header_replaces_what_the_browser_sent() -> None:
    lines = sent((b"authorization", b"token right"), b"Authorization: Basic guessed\r\nX-Other: 1", [b"a=b"])
    assert [line for line in lines if line.lower().startswith(b"authorization")] == [b"authorization: token right"]
    assert b"Cookie: a=b" in lines


def test_code_server_gets_its_secret_as_the_cookie_of_its_session() -> None:
    assert CODE_SERVER.env["HASHED_PASSWORD"] == "{secret}"
    assert secret_of(CODE_SERVER, "s" * 43) == ("Cookie", "code-server-session=" + "s" * 43)


def test_the_secret_of_a_reverse_proxy_never_reaches_a_workspace() -> None:
    lines = sent((b"authorization", b"token right"), b"X-CodeHub-Proxy-Secret: of the proxy\r\nX-Other: 1", [])
    assert b"X-Other: 1" in lines
    assert not [line for line in lines if b"of the proxy" in line]
