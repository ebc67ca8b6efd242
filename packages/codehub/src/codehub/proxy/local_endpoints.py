"""Endpoints that the proxy answers without a workspace: health, metrics, and the redirect to the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from codehub.domain.doors import STREAMS_PREFIX, read_host
from codehub.domain.ids import is_id
from codehub.domain.routing import WORKSPACE_PREFIX, workspace_path
from codehub.proxy import metrics
from codehub.proxy.admission.decision import Admission, Reply, refusal
from codehub.proxy.http1.messages import RequestHead

if TYPE_CHECKING:
    from codehub.proxy.server import ProxyServer

_LOOPBACK = (b"127.", b"::1")
_PREFIX = WORKSPACE_PREFIX.encode()
_NOTHING_HERE = f"there is nothing here but workspaces, at {workspace_path('{id}')}"


class LocalEndpoints:
    def __init__(self, dashboard: str, host_pattern: str, away: Callable[[RequestHead, Admission], Reply]) -> None:
        self._dashboard = dashboard
        self._host_pattern = host_pattern
        self._host_suffix = host_pattern[1:].lower()
        self._away = away
        self.server: ProxyServer | None = None

    def local(self, request: RequestHead, peer: bytes) -> Reply | None:
        if request.target.startswith((_PREFIX, STREAMS_PREFIX.encode())):
            return None
        if self._host_pattern and read_host(request.fields.host.decode("latin-1"), self._host_pattern) is not None:
            return None
        path = request.target.partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            return refusal(404, _NOTHING_HERE)
        if path == b"/health":
            ending = self.server is not None and self.server.draining
            return Reply(
                503 if ending else 200,
                b'{"status":"%b"}\n' % (b"draining" if ending else b"ok"),
                ((b"Content-Type", b"application/json"),),
            )
        # Metrics are only for the local machine; a forwarded request is not local.
        if (
            path == b"/metrics"
            and peer.startswith(_LOOPBACK)
            and not request.fields.forwarded_for
            and self.server is not None
        ):
            return Reply(200, metrics.page(self.server), ((b"Content-Type", b"text/plain; version=0.0.4"),))
        if path == b"/":
            return Reply(303, headers=((b"Location", self._home(request.fields.host).encode()),))
        return refusal(404, _NOTHING_HERE)

    def _home(self, host: bytes) -> str:
        """A workspace's own host leads to the workspace, any other host to the dashboard."""
        name = host.decode("latin-1").lower().partition(":")[0]
        workspace_id = name.removesuffix(self._host_suffix)
        if self._host_suffix and workspace_id != name and is_id(workspace_id):
            return workspace_path(workspace_id)
        return f"{self._dashboard}/"

    def away(self, request: RequestHead, admission: Admission) -> Reply:
        return self._away(request, admission)
