"""`codehub doctor` tries the boundaries from Pods on the real node, whose network enforces no NetworkPolicy."""

from __future__ import annotations

import os

import pytest

from codehub.cli import boundary_targets
from codehub.cli.pod_boundaries import try_in_pods
from codehub.domain.boundaries import Verdict
from codehub.settings import load_settings
from testing.codehub.kubernetes import IMAGE, Node

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


async def test_each_boundary_is_tried_from_a_pod(node: Node, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests send nothing to other machines.
    monkeypatch.setattr(boundary_targets, "_METADATA", ("127.0.0.1",))
    given = {"CODEHUB_RUNTIME": "kubernetes", "CODEHUB_STORAGE": "pvc", "CODEHUB_K8S_IMAGE": IMAGE}
    settings = load_settings({**os.environ, **given, "CODEHUB_K8S_NAMESPACE": namespace})
    found = {one.boundary.name: one for one in await try_in_pods(settings, 120)}
    for name in ("reach the Kubernetes API server", "reach another workspace's ports"):
        assert found[name].verdict is Verdict.NOT_HELD, found[name]
        assert "NetworkPolicies" in found[name].fix
    for name in (
        "reach another workspace's abstract sockets",
        "read a service account's token",
        "make a user namespace",
        "take more memory than its limit",
    ):
        assert found[name].verdict is Verdict.HELD, found[name]
    assert found["start more processes than its limit"].verdict is Verdict.NOT_TRIED
    assert node.kubectl("get", "pods", "-n", namespace, "-o", "name").strip() == "", "no Pod is left"
