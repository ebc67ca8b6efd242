"""Every object that CodeHub creates in a cluster, with every option, and every object that deploy/kubernetes ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from codehub.adapters.kubernetes.helper import Helper
from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.manifests import (
    HomeClaim,
    InstancePod,
    PodOptions,
    TransferJob,
    home_claim,
    instance_pod,
    transfer_job,
)
from codehub.adapters.kubernetes.objects import Meta, Pod
from codehub.adapters.kubernetes.preflight import access_review, probe_claim, probe_pod
from codehub.adapters.kubernetes.probes import attacking_pod

Json = dict[str, Any]
_DEPLOY = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
EVERY_OPTION = PodOptions(
    image_pull_secrets=("registry",),
    runtime_class="gvisor",
    priority_class="workspaces",
    node_selector={"pool": "a"},
    tolerations=({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},),
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}},
    extra_resources={"nvidia.com/gpu": "1"},
    labels={"example.org/team": "a", "codehub.dev/role": "forged"},
    annotations={"example.org/note": "any text"},
)


@dataclass(frozen=True)
class Shipped:
    path: Path
    document: Json

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.document['kind']}/{self.document.get('metadata', {}).get('name', '')}"


def created() -> list[Json]:
    """Return everything that CodeHub creates, without options and with all of them."""
    return [
        *(one for options in (PodOptions(), EVERY_OPTION) for one in (*_pods(options), *_jobs(options))),
        *_claims(),
        *(probe_pod("codehub:1", options) for options in (PodOptions(), EVERY_OPTION)),
        probe_claim("n", Pod(Meta("n", "ns", "uid", "1")), ClaimOptions("fast", "1Gi", "ReadWriteOncePod")),
        attacking_pod("codehub:1", EVERY_OPTION, {"seconds": 60}),
        access_review("codehub-workspaces", "batch", "jobs", "", "create"),
    ]


def _pods(options: PodOptions) -> list[Json]:
    return [
        instance_pod(InstancePod("n", "i", "w", "image", 8080, {"A": "b"}, "c", "uid", "d", "X: s", helper), options)
        for helper in (None, Helper("codehub:1", "secret"), Helper("codehub:1", "secret", awaits_environment=True))
    ]


def _jobs(options: PodOptions) -> list[Json]:
    return [
        transfer_job(TransferJob("n", "i", "w", "op", direction, "codehub:1", "c", "uid", "s", read_only), options)
        for direction, read_only in (("archive", True), ("archive", False), ("restore", False))
    ]


def _claims() -> list[Json]:
    return [
        home_claim(HomeClaim("n", "i", "w", "inc", archive, "1Gi", storage_class, mode))
        for archive, storage_class, mode in ((None, "", "ReadWriteOnce"), ("w/a", "fast", "ReadWriteOncePod"))
    ]


def shipped() -> list[Shipped]:
    """Return the documents of deploy/kubernetes, including those that only kustomize reads."""
    return [
        Shipped(path, document)
        for path in sorted(_DEPLOY.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def pod_spec(document: Json) -> Json | None:
    """Return the spec of the Pods that an object is or makes, or None if it makes none."""
    spec: Json = document.get("spec") or {}
    if document["kind"] == "Pod":
        return spec
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template: Json | None = spec.get("template")
    return None if template is None else template["spec"]
