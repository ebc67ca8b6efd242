"""Every Pod that CodeHub creates or ships is allowed by the restricted Pod Security Standard."""

from __future__ import annotations

from typing import Any

import pytest

from testing.codehub.kubernetes_objects import Shipped, created, pod_spec, shipped
from testing.codehub.pod_security import containers, violations

# What 1.20 and every later release serve. policy/v1 is 1.21: the disruption budgets are a component that says so.
VERSIONS = {
    "v1",
    "apps/v1",
    "authorization.k8s.io/v1",
    "batch/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "kustomize.config.k8s.io/v1beta1",
    "kustomize.config.k8s.io/v1alpha1",
}
NEWER = {"policy/v1": "disruption-budgets", "gateway.networking.k8s.io/v1": "gateway"}
NAMESPACES = [one for one in shipped() if one.document["kind"] == "Namespace"]


@pytest.mark.parametrize("spec", [spec for one in created() if (spec := pod_spec(one)) is not None])
def test_what_codehub_creates_is_allowed(spec: dict[str, Any]) -> None:
    assert violations(spec) == []
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    for container in containers(spec):
        assert set(container["resources"]["limits"]) >= {"memory"}, "a quota on limits refuses a container without"


@pytest.mark.parametrize("one", [one for one in shipped() if pod_spec(one.document) is not None], ids=str)
def test_what_is_shipped_is_allowed(one: Shipped) -> None:
    assert violations(pod_spec(one.document) or {}) == []


def test_the_shipped_namespaces_enforce_the_standard() -> None:
    enforced = {
        one.document["metadata"]["name"]: one.document["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in NAMESPACES
    }
    assert enforced == {"codehub": "restricted", "codehub-workspaces": "restricted"}


def test_only_api_versions_that_every_supported_release_serves_are_used() -> None:
    assert {one["apiVersion"] for one in created()} <= VERSIONS
    found = shipped()
    assert len(found) > 30
    for one in found:
        version = one.document["apiVersion"]
        assert version in VERSIONS or NEWER.get(version) == one.path.parent.name, (one.path, version)


ALLOWED: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "c",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


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
    assert violations(ALLOWED) == []
    assert said in violations({**ALLOWED, **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"securityContext": {}}, "c: capabilities are not dropped"),
        ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "c: hostPort"),
        ({"livenessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}}, "c: livenessProbe names a host"),
        ({"lifecycle": {"preStop": {"httpGet": {"host": "10.0.0.1"}}}}, "c: preStop names a host"),
    ],
)
def test_the_check_itself_refuses_containers_that_the_standard_refuses(change: dict[str, Any], said: str) -> None:
    container = {**ALLOWED["containers"][0], **change}
    assert said in violations({**ALLOWED, "containers": [container]})


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"privileged": True}, "c: privileged"),
        ({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, "c: capabilities are added"),
        ({"runAsUser": 0}, "c: runAsUser 0"),
        ({"runAsNonRoot": False}, "c: runAsNonRoot"),
        ({"seccompProfile": {"type": "Unconfined"}}, "c: seccompProfile"),
        ({"appArmorProfile": {"type": "Unconfined"}}, "c: appArmorProfile"),
        ({"seLinuxOptions": {"type": "spc_t"}}, "c: seLinuxOptions"),
        ({"procMount": "Unmasked"}, "c: procMount"),
        ({"windowsOptions": {"hostProcess": True}}, "c: windowsOptions"),
    ],
)
def test_the_check_itself_refuses_contexts_that_the_standard_refuses(security: dict[str, Any], said: str) -> None:
    container = ALLOWED["containers"][0]
    changed = {**container, "securityContext": {**container["securityContext"], **security}}
    assert said in violations({**ALLOWED, "containers": [changed]})
