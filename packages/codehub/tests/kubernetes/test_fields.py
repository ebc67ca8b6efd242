"""Every field that CodeHub and deploy/kubernetes use is one that the server knows, whichever release it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codehub.adapters.kubernetes.helper import Helper
from codehub.adapters.kubernetes.manifests import (
    HomeClaim,
    InstancePod,
    PodOptions,
    TransferJob,
    home_claim,
    instance_pod,
    transfer_job,
)
from codehub.adapters.kubernetes.preflight import probe_pod
from testing.codehub.kubernetes import Node, rendered
from testing.codehub.kubernetes_schema import Json, unknown_fields

pytestmark = [pytest.mark.needs("kubernetes", "root")]
# Components that an operator adds where the cluster has them: since 1.21, and by a separate installation.
OPTIONAL = {"PodDisruptionBudget", "HTTPRoute"}
TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
EVERYTHING = PodOptions(
    image_pull_secrets=("registry",),
    runtime_class="gvisor",
    priority_class="workspaces",
    node_selector={"pool": "a"},
    tolerations=({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},),
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}},
    extra_resources={"nvidia.com/gpu": "1"},
)


def created() -> list[dict[str, Any]]:
    """Everything that CodeHub creates, with every option."""
    helper = Helper("codehub:1", "secret", awaits_environment=True)
    pod = InstancePod("n", "i", "w", "image", 8080, {"A": "b"}, "claim", "uid", "digest", "X-Secret: s", helper)
    job = TransferJob("n", "i", "w", "op", "archive", "image", "claim", "uid", "secret", read_only=True)
    claim = HomeClaim("n", "i", "w", "inc", "key", "1Gi", "class", "ReadWriteOncePod")
    return [
        instance_pod(pod, EVERYTHING),
        transfer_job(job, EVERYTHING),
        home_claim(claim),
        probe_pod("image"),
    ]


@pytest.fixture(scope="module")
def definitions(node: Node) -> dict[str, Json]:
    return dict(json.loads(node.kubectl("get", "--raw", "/openapi/v2"))["definitions"])


def test_the_server_knows_every_field_of_what_codehub_creates(definitions: dict[str, Json]) -> None:
    assert [(one["kind"], unknown_fields(one, definitions)) for one in created()] == [
        ("Pod", []),
        ("Job", []),
        ("PersistentVolumeClaim", []),
        ("Pod", []),
    ]


def test_an_unknown_field_is_found(definitions: dict[str, Json]) -> None:
    pod, *_ = created()
    pod["spec"]["containers"][0]["securityContext"]["isSafe"] = True
    assert unknown_fields(pod, definitions) == ["Pod.spec.containers[0].securityContext.isSafe"]
    assert unknown_fields({"apiVersion": "v7", "kind": "Pod"}, definitions) is None


@pytest.mark.parametrize("overlay", ["trial", "production"])
def test_the_server_knows_every_field_of_what_is_shipped(overlay: str, definitions: dict[str, Json]) -> None:
    documents = rendered(overlay)
    found = {(one["kind"], one["metadata"]["name"]): unknown_fields(one, definitions) for one in documents}
    assert {kind for (kind, _), fields in found.items() if fields is None} <= OPTIONAL
    assert {key: fields for key, fields in found.items() if fields} == {}
