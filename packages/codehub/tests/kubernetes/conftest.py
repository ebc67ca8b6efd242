"""Fixtures of the real node. Its tests run by `make test-kubernetes` only."""

from testing.codehub.kubernetes import cluster, namespace, node
from testing.codehub.kubernetes_stack import beside

__all__ = ["beside", "cluster", "namespace", "node"]
