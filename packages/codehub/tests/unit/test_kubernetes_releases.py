"""Every object that CodeHub creates or ships is accepted by every Kubernetes release whose schemas are published on PyPI.

Those are 1.25 to the current one. 1.20 is checked on the test node, by the schema that its server publishes
(tests/kubernetes/test_fields.py).
"""

from __future__ import annotations

import copy

import pytest

from testing.codehub.kubernetes_objects import created, shipped
from testing.codehub.kubernetes_releases import problems, releases

# Read by kustomize, and by a controller that brings its own schemas.
_NOT_OF_KUBERNETES = ("kustomize.config.k8s.io", "gateway.networking.k8s.io")
OBJECTS = [
    *created(),
    *(one.document for one in shipped() if not one.document["apiVersion"].startswith(_NOT_OF_KUBERNETES)),
]


@pytest.mark.parametrize("release", releases())
def test_every_object_is_accepted_by(release: str) -> None:
    assert len(OBJECTS) > 40
    assert [found for one in OBJECTS for found in problems(one, release)] == []


def test_a_release_refuses_what_its_server_refuses() -> None:
    unknown, mistyped, missing, removed = (copy.deepcopy(created()[0]) for _ in range(4))
    unknown["spec"]["containers"][0]["securityContext"]["isSafe"] = True
    mistyped["spec"]["automountServiceAccountToken"] = "no"
    del missing["spec"]["containers"]
    removed |= {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"}
    newest = releases()[-1]
    assert "isSafe" in problems(unknown, newest)[0]
    assert "automountServiceAccountToken" in problems(mistyped, newest)[0]
    assert "containers" in problems(missing, newest)[0]
    assert problems(removed, newest) == [f"PodDisruptionBudget n: {newest} has no policy/v1beta1"]
