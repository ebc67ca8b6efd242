"""Every Pod that CodeHub creates or ships is allowed by the restricted Pod Security Standard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from codehub.adapters.kubernetes.helper import Helper
from codehub.adapters.kubernetes.manifests import InstancePod, PodOptions, TransferJob, instance_pod, transfer_job
from codehub.adapters.kubernetes.preflight import probe_pod
from codehub.adapters.kubernetes.probes import attacking_pod
from testing.codehub.pod_security import containers, violations

DEPLOY = Path(__file__).resolve().parents[4] / "deploy/kubernetes"
# What 1.20 and every later release serve. policy/v1 is 1.21: the disruption budgets are a component that says so.
VERSIONS = {
    "v1",
    "apps/v1",
    "batch/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "kustomize.config.k8s.io/v1beta1",
    "kustomize.config.k8s.io/v1alpha1",
}
NEWER = {"policy/v1": "disruption-budgets", "gateway.networking.k8s.io/v1": "gateway"}
EVERYTHING = PodOptions(
    image_pull_secrets=("registry",),
    runtime_class="gvisor",
    priority_class="low",
    node_selector={"pool": "workspaces"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
    affinity={"nodeAffinity": {}},
    extra_resources={"nvidia.com/gpu": "1"},
)


def shipped() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (path, document)
        for path in sorted(DEPLOY.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def created() -> list[dict[str, Any]]:
    pods = []
    for options in (PodOptions(), EVERYTHING):
        for helper in (None, Helper("codehub:1", "secret")):
            what = InstancePod("p", "i", "w", "image:1", 8080, {"HOME": "/home/coder"}, "c", "u", "d", "X: y", helper)
            pods.append(instance_pod(what, options)["spec"])
        for direction in ("archive", "restore"):
            job = TransferJob("j", "i", "w", "op", direction, "codehub:1", "c", "u", "secret", direction == "archive")
            pods.append(transfer_job(job, options)["spec"]["template"]["spec"])
    return [*pods, probe_pod("codehub:1")["spec"], attacking_pod("codehub:1", {"seconds": 60})["spec"]]


@pytest.mark.parametrize("spec", created())
def test_what_codehub_creates_is_allowed(spec: dict[str, Any]) -> None:
    assert violations(spec) == []
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    for container in containers(spec):
        assert set(container["resources"]["limits"]) >= {"memory"}, "a quota on limits refuses a container without"


@pytest.mark.parametrize(
    ("path", "document"),
    [(path, one) for path, one in shipped() if "template" in (one.get("spec") or {})],
    ids=lambda value: value.name if isinstance(value, Path) else value["metadata"]["name"],
)
def test_what_is_shipped_is_allowed(path: Path, document: dict[str, Any]) -> None:
    assert violations(document["spec"]["template"]["spec"]) == []


def test_manifests_use_api_versions_that_every_supported_release_serves() -> None:
    found = shipped()
    assert len(found) > 30
    for path, document in found:
        version = document["apiVersion"]
        assert version in VERSIONS or NEWER.get(version) == path.parent.name, (path, version)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volume v: hostPath"),
        ({"securityContext": {"runAsNonRoot": True}}, "c: seccompProfile"),
        ({"containers": [{"name": "c"}]}, "c: allowPrivilegeEscalation"),
    ],
)
def test_the_check_itself_refuses_what_the_standard_refuses(change: dict[str, Any], said: str) -> None:
    allowed = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "c",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
    assert violations(allowed) == []
    assert said in violations({**allowed, **change})
