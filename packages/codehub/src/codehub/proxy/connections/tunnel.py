"""An upgraded connection: bytes in both directions, with each side's end forwarded as a half-close, until both have ended.

Bytes are forwarded first and examined afterwards, and only if WebSocket frames are needed to detect activity. Large
transfers of other streams move inside the kernel (`splice`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from codehub.proxy.activity.byte_streams import ByteRate
from codehub.proxy.activity.websocket_frames import FrameScanner, InflatingScanner, Scanner, close_frame
from codehub.proxy.admission.decision import Admission
from codehub.proxy.connections.pace import Pace
from codehub.proxy.connections.splice import BULK, Splice
from codehub.proxy.connections.upstream import UpstreamConnection
from codehub.proxy.http1.messages import ResponseHead

if TYPE_CHECKING:
    from codehub.proxy.server import ProxyServer

# After one side ended, the other may finish sending, but not indefinitely.
HALF_CLOSED_S: Final = 60.0


class TunnelSide(asyncio.Protocol):
    """Forwards what one side sends to the other."""

    __slots__ = ("_feed", "_pace", "_tunnel", "_write", "ended", "gone", "other", "scanner", "transport")

    def __init__(self, tunnel: Tunnel, transport: asyncio.Transport, scanner: Scanner | ByteRate | None) -> None:
        self._tunnel = tunnel
        self.transport = transport
        self.scanner = scanner
        self._feed = scanner.feed if scanner is not None else None
        self._pace = Pace(
            tunnel.admission.target.activity.scan_budget, transport, self.data_received, asyncio.get_running_loop()
        )
        self.ended = False  # it has finished sending
        self.gone = False
        self.other: TunnelSide

    def join(self, other: TunnelSide) -> None:
        self.other = other
        self._write = other.transport.write

    def data_received(self, data: bytes) -> None:
        if self._pace.holds(data):
            return
        self._write(data)
        self.examine(data)

    def examine(self, data: bytes) -> None:
        """Scan data that was forwarded."""
        if self._feed is not None:
            self._pace.charge(self._feed(data))

    @property
    def between_frames(self) -> bool:
        return self.scanner is None or self.scanner.at_boundary

    def eof_received(self) -> bool:
        self.ended = True
        if self.other.ended or self.other.transport.is_closing():
            self.other.transport.close()
            return False
        self._tunnel.half_closed()
        self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        self.other.block()

    def resume_writing(self) -> None:
        self.other.unblock()

    def block(self) -> None:
        """Read nothing for now: the other side takes nothing."""
        self._pace.block()

    def unblock(self) -> None:
        self._pace.unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_splice()
        self.other.stop_splice()
        self._tunnel.lost(self, exc)

    def stop_splice(self) -> None:
        """Return the bytes to the transports."""


class StreamSide(TunnelSide):
    """One side of a stream that is not a WebSocket, such as SSH."""

    __slots__ = ("_rate", "_server", "_splice")

    def __init__(
        self, server: ProxyServer, tunnel: Tunnel, transport: asyncio.Transport, rate: ByteRate | None
    ) -> None:
        super().__init__(tunnel, transport, rate)
        self._server = server
        self._rate = rate
        self._splice: Splice | None = None

    def data_received(self, data: bytes) -> None:
        if len(data) < BULK or not self._begin_splice(data):
            super().data_received(data)

    def _begin_splice(self, data: bytes) -> bool:
        """Move this and what follows inside the kernel. Returns False if that is not possible now."""
        target = self.other.transport
        if target.is_closing() or target.get_write_buffer_size():
            return False
        try:
            splice = Splice(
                self._server.loop,
                self._server.pipes,
                self.transport.get_extra_info("socket"),
                target.get_extra_info("socket"),
                self._rate.count if self._rate is not None else None,
                self._splice_stopped,
            )
        except OSError:
            return False
        self.transport.pause_reading()
        self._splice = splice
        if self._rate is not None:
            self._rate.count(len(data))
        splice.start(data)
        return True

    def _splice_stopped(self, target_failed: bool) -> None:
        self._splice = None
        if target_failed:
            self.other.transport.abort()
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def stop_splice(self) -> None:
        if self._splice is not None:
            self._splice.stop()


class Tunnel:
    """Both sides and their admission."""

    __slots__ = ("_closing", "_server", "admission", "client", "deadline", "is_websocket", "peer", "server")

    def __init__(self, server: ProxyServer, admission: Admission, peer: bytes) -> None:
        self._server = server
        self.peer = peer
        self.admission = admission
        self.deadline = float("inf")
        self.is_websocket = False
        self._closing = False
        self.client: TunnelSide
        self.server: TunnelSide

    def half_closed(self) -> None:
        self.deadline = self._server.clock.now + HALF_CLOSED_S

    def lost(self, side: TunnelSide, exc: Exception | None) -> None:
        other = side.other
        side.ended = side.gone = True
        if other.gone:
            self._server.leave_tunnel(self)
            return
        self.half_closed()
        if exc is not None:
            other.transport.abort()
        elif not other.transport.is_closing():
            other.transport.close()

    def expire(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()

    def go_away(self) -> bool:
        """Send close frames between two frames, then close.

        Returns False while a frame is still being sent to the browser.
        """
        if self._closing:
            return True
        if self.is_websocket:
            if not self.server.between_frames:
                return False
            # uvloop refuses to write to a side that is gone, and the shutdown of all other tunnels would end here.
            if not self.server.ended and not self.client.gone:
                self.client.transport.write(close_frame(self.admission.target.close_code, masked=False))
            if not self.client.ended and not self.server.gone and self.client.between_frames:
                self.server.transport.write(close_frame(1001, masked=True))
        self._closing = True
        self.client.transport.close()
        self.server.transport.close()
        return True


def open_tunnel(
    server: ProxyServer,
    client: asyncio.Transport,
    upstream: UpstreamConnection,
    admission: Admission,
    response: ResponseHead,
    to_client: bytes,
    to_server: bytes,
    peer: bytes,
) -> Tunnel:
    """Join two transports. `to_client` begins with the 101's head; both arguments carry data that has already arrived."""
    tunnel = Tunnel(server, admission, peer)
    tunnel.is_websocket = response.upgrade.lower() == b"websocket"
    head_size = to_client.find(b"\r\n\r\n") + 4
    server_scanner: Scanner | None = None
    if tunnel.is_websocket:
        server_scanner, client_scanner = _scanners(server, admission, response)
        tunnel.client = TunnelSide(tunnel, client, client_scanner)
        tunnel.server = TunnelSide(tunnel, upstream.transport, server_scanner)
    else:
        rate = ByteRate(admission.target.activity, server.clock)
        tunnel.client = StreamSide(server, tunnel, client, rate)
        tunnel.server = StreamSide(server, tunnel, upstream.transport, None)
    tunnel.client.join(tunnel.server)
    tunnel.server.join(tunnel.client)
    upstream.client = None
    upstream.pool.discard(upstream)
    server.tunnels.add(tunnel)
    client.set_protocol(tunnel.client)
    upstream.transport.set_protocol(tunnel.server)
    client.write(to_client)
    if server_scanner is not None and len(to_client) > head_size:
        tunnel.server.examine(to_client[head_size:])
    if to_server:
        tunnel.client.data_received(to_server)
    client.resume_reading()
    upstream.transport.resume_reading()
    return tunnel


def _scanners(server: ProxyServer, admission: Admission, response: ResponseHead) -> tuple[Scanner, Scanner]:
    """Return (scanner of the server's data, scanner of the browser's data)."""
    target = admission.target
    extensions = _extensions(response)
    if b"permessage-deflate" in extensions and target.background.frame_rules:
        return (
            InflatingScanner(
                target.activity, target.background, keep_context=b"server_no_context_takeover" not in extensions
            ),
            InflatingScanner(
                target.activity, target.background, keep_context=b"client_no_context_takeover" not in extensions
            ),
        )
    return (
        FrameScanner(target.activity, server.clock, target.background),
        FrameScanner(target.activity, server.clock, target.background),
    )


def _extensions(response: ResponseHead) -> bytes:
    for line in response.lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"sec-websocket-extensions":
            return value.lower()
    return b""
