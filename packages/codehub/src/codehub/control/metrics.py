"""The coordinator's metrics. One registry per coordinator, so that two in one process do not share counters."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_leader = Gauge("codehub_coordinator_is_leader", "1 while this process leads", registry=self.registry)
        self.refuses_to_lead = Gauge(
            "codehub_coordinator_refuses_to_lead",
            "1 while this process refuses to lead because it sees other stores than this installation's",
            registry=self.registry,
        )
        self.leader_changes = Counter(
            "codehub_coordinator_leader_changes",
            "Terms this process has won or lost",
            ["what"],
            registry=self.registry,
        )
        self.ticks = Counter(
            "codehub_coordinator_ticks",
            "Ticks by component and outcome",
            ["component", "outcome"],
            registry=self.registry,
        )
        self.tick_seconds = Histogram(
            "codehub_coordinator_tick_seconds", "How long a tick takes", ["component"], registry=self.registry
        )
        self.queue_depth = Gauge(
            "codehub_coordinator_queue_depth", "Workspaces that wait for a worker", registry=self.registry
        )
        self.backend_up = Gauge(
            "codehub_coordinator_backend_up", "0 while a backend does not answer", ["backend"], registry=self.registry
        )
        self.losses_paused = Gauge(
            "codehub_coordinator_losses_paused",
            "1 while so many workspaces seem lost at once that none is marked",
            registry=self.registry,
        )
        self.operations = Counter(
            "codehub_coordinator_operations",
            "Operations by outcome",
            ["operation", "outcome"],
            registry=self.registry,
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)
