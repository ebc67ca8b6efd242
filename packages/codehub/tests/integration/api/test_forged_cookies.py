"""Session cookies that a page on another host of the site has set, and heads that are too large."""

from __future__ import annotations

import asyncio

from testing.codehub.api import Api, listening, new_id

HOST = "Host: 127.0.0.1:8000"
# What browsers keep of one site.
MOST_COOKIES = 180
LONGEST_COOKIE = 4096


async def answer(port: int, *lines: str) -> str:
    """Send a request's head, and return the answer's status line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(60):
            return (await reader.readline()).decode().strip()
    finally:
        writer.close()


async def session_of(api: Api) -> tuple[str, str]:
    client = await api.signed_in()
    return client.cookies["session"], client.headers["X-CodeHub-Session-Key"]


async def test_as_many_forged_sessions_as_a_browser_keeps_lock_nobody_out(api: Api) -> None:
    secret, key = await session_of(api)
    stranger = (await api.user("stranger")).cookies["session"]
    forged = [f"session={'x' * len(secret)}"] * (MOST_COOKIES - 2) + [f"session={stranger}"]
    async with listening(api) as address:
        port = int(address.rpartition(":")[2])
        for sent in ([*forged, f"session={secret}"], [f"session={secret}", *forged]):
            lines = [
                "GET /api/v1/session HTTP/1.1",
                HOST,
                f"X-CodeHub-Session-Key: {key}",
                f"Cookie: {'; '.join(sent)}",
            ]
            assert await answer(port, *lines) == "HTTP/1.1 200 OK"
        only_forged = [
            "GET /api/v1/session HTTP/1.1",
            HOST,
            f"X-CodeHub-Session-Key: {key}",
            f"Cookie: {'; '.join(forged)}",
        ]
        assert await answer(port, *only_forged) == "HTTP/1.1 401 Unauthorized"


async def test_the_largest_cookies_that_a_browser_keeps_do_not_keep_anybody_out(api: Api) -> None:
    secret, key = await session_of(api)
    jar = [f"c{number}={'x' * (LONGEST_COOKIE - 8)}" for number in range(MOST_COOKIES - 1)]
    cookie = f"Cookie: {'; '.join([*jar, f'session={secret}'])}"
    async with listening(api) as address:
        port = int(address.rpartition(":")[2])
        seen = await answer(port, "GET /api/v1/session HTTP/1.1", HOST, f"X-CodeHub-Session-Key: {key}", cookie)
        assert seen == "HTTP/1.1 200 OK"
        # A terminal's WebSocket carries the key in a protocol. Its handshake has tighter limits of its own.
        upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", HOST, cookie]
        upgrade += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Sec-WebSocket-Protocol: codehub.key.{key}"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        path = f"/api/v1/workspaces/{new_id()}/terminals/x/attach"
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *upgrade, "", ""]).encode())
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 "), head
            closing = await reader.readexactly(4)
        # Signed in, but there is no such workspace.
        assert int.from_bytes(closing[2:]) == 4404
        writer.close()


async def test_an_endless_head_is_refused(api: Api) -> None:
    begin = b"GET /health HTTP/1.1\r\nX: "
    # One byte above the limit, and no more: a server that closes with unread bytes resets the connection.
    sent = begin + b"x" * ((1 << 20) + 1 - len(begin))
    async with listening(api) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(sent)
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.close()
