"""The API's metrics, on a registry that is passed in."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ApiMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "codehub_api_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "codehub_api_request_seconds",
            "From the first byte in to the last byte out.",
            ["method", "route"],
            registry=registry,
            buckets=_SECONDS,
        )
        self.streams = Gauge("codehub_api_event_streams", "Open live event streams.", registry=registry)
        self.stream_failures = Gauge(
            "codehub_api_event_stream_failures",
            "How often live events failed in an unforeseen way and began again.",
            registry=registry,
        )
        self.dropped = Counter(
            "codehub_api_event_streams_dropped", "Streams ended because nothing was read.", registry=registry
        )
