"""Fixtures of the real node. Its tests run by `make test-kubernetes` only."""

from testing.codehub.kubernetes import cluster, namespace, node

__all__ = ["cluster", "namespace", "node"]
