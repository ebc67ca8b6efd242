"""The proxy's metrics in Prometheus format. Plain numbers: the hot path adds, the page formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codehub.proxy.server import ProxyServer


class Metrics:
    __slots__ = ("by_class", "refused", "requests", "revoked")

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0  # malformed, too large, too slow
        self.revoked = 0
        self.by_class = [0] * 10

    def count(self, status: int) -> None:
        self.by_class[status // 100] += 1


def page(server: ProxyServer) -> bytes:
    metrics = server.metrics
    rows = [
        "# HELP codehub_proxy_requests_total Requests read.",
        "# TYPE codehub_proxy_requests_total counter",
        f"codehub_proxy_requests_total {metrics.requests}",
        "# HELP codehub_proxy_responses_total Responses by class of status.",
        "# TYPE codehub_proxy_responses_total counter",
        *(f'codehub_proxy_responses_total{{class="{c}xx"}} {metrics.by_class[c]}' for c in range(1, 6)),
        "# HELP codehub_proxy_refused_total Messages refused as malformed, too large or too slow.",
        "# TYPE codehub_proxy_refused_total counter",
        f"codehub_proxy_refused_total {metrics.refused}",
        "# HELP codehub_proxy_revoked_total Connections closed because their sign-in ended.",
        "# TYPE codehub_proxy_revoked_total counter",
        f"codehub_proxy_revoked_total {metrics.revoked}",
        "# HELP codehub_proxy_connections Open browser connections by kind.",
        "# TYPE codehub_proxy_connections gauge",
        f'codehub_proxy_connections{{kind="http"}} {len(server.connections)}',
        f'codehub_proxy_connections{{kind="tunnel"}} {len(server.tunnels)}',
    ]
    return ("\n".join(rows) + "\n").encode()
