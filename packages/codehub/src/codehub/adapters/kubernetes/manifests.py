"""The objects that CodeHub creates, as JSON for the API server. Pure.

All of them comply with the *restricted* Pod Security Standard and use only fields that exist both in 1.20 and in current
releases.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from codehub.adapters.kubernetes import helper as helpers
from codehub.adapters.kubernetes.objects import (
    INSTALLATION,
    MANAGED_BY,
    PREFIX,
    ROLE,
    ROLE_HOME,
    ROLE_INSTANCE,
    ROLE_TRANSFER,
    WORKSPACE,
)
from codehub.adapters.kubernetes.quantity import quantity

HOME: Final = "/home/coder"
UID: Final = 1000
CONTAINER: Final = "ide"
SPEC, SECRET_HEADER, PORT = PREFIX + "spec", PREFIX + "secret-header", PREFIX + "port"
WORKSPACED: Final = PREFIX + "workspaced"
INCARNATION, RESTORED_FROM, COMPLETE = PREFIX + "incarnation", PREFIX + "restored-from", PREFIX + "whole"
# The resourceVersion that a claim had when it was completed. A creation time is in whole seconds.
COMPLETED_AT: Final = PREFIX + "completed-at-version"
OPERATION, DIRECTION, TRANSFER_SECRET = PREFIX + "operation", PREFIX + "direction", PREFIX + "transfer-secret"
PLACEMENT: Final = PREFIX + "placement"
TRANSFER_PORT: Final = 7070
# What the scheduler reserves on a node's disk. Without a request it would reserve the limit, 10 GiB for each workspace.
_EPHEMERAL_REQUEST: Final = helpers.SIZE

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodOptions:
    """What an installation's pods may use and where they may run. Quantities use Kubernetes' notation (`500m`, `4Gi`)."""

    cpu_limit: str = "2"
    memory_limit: str = "4Gi"
    cpu_request: str = "100m"
    memory_request: str = "512Mi"
    ephemeral_storage: str = "10Gi"
    grace_s: int = 10
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    priority_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] | None = None
    extra_resources: Mapping[str, str] = field(default_factory=dict)  # nvidia.com/gpu = 1
    # Pull only if the node lacks the image: what a tag means is fixed when a workspace is created.
    image_pull_policy: str = "IfNotPresent"
    # Of a template, for the Pods of its workspaces and of their transfers. They never replace CodeHub's own.
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return repr(
            (
                self.cpu_limit, self.memory_limit, self.ephemeral_storage, self.runtime_class,
                sorted(self.node_selector.items()), sorted(self.extra_resources.items()),
            )
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstancePod:
    """Everything that one start of one workspace is created from."""

    name: str
    installation: str
    workspace_id: str
    image: str
    port: int
    env: Mapping[str, str]
    claim: str
    claim_uid: str
    digest: str
    secret_header: str = ""
    helper: helpers.Helper | None = None


# Pods on a dead node stay until someone decides. Without these tolerations, the control plane would mark them deleted after
# five minutes, and a node that comes back would end workspaces that never stopped.
_STAY: Final = tuple(
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
    for taint in ("unreachable", "not-ready")
)


def labels(installation: str, workspace_id: str, role: str) -> dict[str, str]:
    return {INSTALLATION: installation, WORKSPACE: workspace_id, ROLE: role, MANAGED_BY: "codehub"}


def instance_pod(what: InstancePod, options: PodOptions) -> Json:
    annotations = {SPEC: what.digest, PORT: str(what.port)}
    if what.secret_header:
        annotations[SECRET_HEADER] = what.secret_header
    if what.helper is not None:
        annotations[WORKSPACED] = helpers.written(what.helper)
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": what.name,
            "labels": {**options.labels, **labels(what.installation, what.workspace_id, ROLE_INSTANCE)},
            "annotations": {**options.annotations, **annotations},
            # If a deposed leader creates a pod too late, its home is gone and the garbage collector removes the pod.
            "ownerReferences": [owner("v1", "PersistentVolumeClaim", what.claim, what.claim_uid)],
        },
        "spec": {
            **_pod_spec(options, read_only=False, claim=what.claim),
            "terminationGracePeriodSeconds": options.grace_s,
            # The sandbox's process is PID 1 and reaps processes that terminals leave behind.
            "shareProcessNamespace": True,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": what.image,
                    "imagePullPolicy": options.image_pull_policy,
                    "workingDir": HOME,
                    # The kubelet takes `$(NAME)` for a reference and `$$` for one `$`: every value is meant as it is.
                    "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in what.env.items()],
                    "ports": [{"name": "ide", "containerPort": what.port}],
                    "resources": _resources(options),
                    "securityContext": _container_security(),
                    "volumeMounts": [{"name": "home", "mountPath": HOME}],
                }
            ],
        },
    }
    if what.helper is not None:
        _add_helper(made["spec"], what, what.helper, options)
    return made


def _add_helper(spec: Json, what: InstancePod, helper: helpers.Helper, options: PodOptions) -> None:
    container = spec["containers"][0]
    spec["initContainers"] = helpers.init_containers(
        helper, what.image, HOME, options.image_pull_policy, _container_security()
    )
    spec["volumes"].append(helpers.volume())
    container["volumeMounts"].extend(helpers.mounts())
    container["ports"].append({"name": "workspaced", "containerPort": helper.port})
    container["lifecycle"] = helpers.hook(helper, HOME, what.port)


@dataclass(frozen=True, slots=True)
class TransferJob:
    """One archive or restore: a pod that exchanges a home's bytes with a caller that knows `secret`."""

    name: str
    installation: str
    workspace_id: str
    operation: str
    direction: str  # archive or restore
    image: str
    claim: str
    claim_uid: str
    secret: str
    read_only: bool


def transfer_job(what: TransferJob, options: PodOptions) -> Json:
    metadata_labels = labels(what.installation, what.workspace_id, ROLE_TRANSFER) | {OPERATION: what.operation}
    annotations = {DIRECTION: what.direction, TRANSFER_SECRET: what.secret, PLACEMENT: placement_digest(options)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": what.name,
            "labels": metadata_labels,
            "annotations": annotations,
            "ownerReferences": [owner("v1", "PersistentVolumeClaim", what.claim, what.claim_uid)],
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": {**options.labels, **metadata_labels},
                    "annotations": {**options.annotations, **annotations},
                },
                "spec": {
                    **_pod_spec(options, read_only=what.read_only, claim=what.claim),
                    "terminationGracePeriodSeconds": 5,
                    "containers": [
                        {
                            "name": "transfer",
                            "image": what.image,
                            "imagePullPolicy": options.image_pull_policy,
                            "command": [
                                "python3",
                                "-m",
                                "codehub.adapters.kubernetes.transfer_server",
                                what.direction,
                                "/volume",
                            ],
                            "env": [
                                {"name": "CODEHUB_TRANSFER_SECRET", "value": what.secret},
                                {"name": "HOME", "value": "/tmp"},  # noqa: S108 - inside the container
                            ],
                            "ports": [{"name": "transfer", "containerPort": TRANSFER_PORT}],
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
                                "limits": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                            },
                            "securityContext": _container_security(),
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": [{"name": "home", "mountPath": "/volume", "readOnly": what.read_only}],
                        }
                    ],
                },
            },
        },
    }


@dataclass(frozen=True, slots=True)
class HomeClaim:
    name: str
    installation: str
    workspace_id: str
    incarnation: str
    restored_from: str | None
    size: str
    storage_class: str
    access_mode: str


def home_claim(what: HomeClaim) -> Json:
    """Return a claim that is not complete yet: an annotation marks it once its content exists."""
    annotations = {INCARNATION: what.incarnation}
    if what.restored_from is not None:
        annotations[RESTORED_FROM] = what.restored_from
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": what.name,
            "labels": labels(what.installation, what.workspace_id, ROLE_HOME),
            "annotations": annotations,
        },
        "spec": claim_spec(what.size, what.storage_class, what.access_mode),
    }


def claim_spec(size: str, storage_class: str, access_mode: str) -> Json:
    """Return a claim's spec. An empty class means the cluster's default."""
    spec: Json = {"accessModes": [access_mode], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class} if storage_class else spec


def owner(version: str, kind: str, name: str, uid: str) -> Json:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid}


def _pod_spec(options: PodOptions, *, read_only: bool, claim: str) -> Json:
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            # Otherwise the kubelet would change every file of a large home at every start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}],
        **placement(options),
    }
    return {**spec, "tolerations": [*_STAY, *options.tolerations]}


def placement(options: PodOptions) -> Json:
    """Return where a pod may run and how its image is pulled: the same for workspaces, transfers and doctor's pods."""
    optional: Sequence[tuple[str, object]] = (
        ("imagePullSecrets", [{"name": name} for name in options.image_pull_secrets]),
        ("runtimeClassName", options.runtime_class),
        ("priorityClassName", options.priority_class),
        ("nodeSelector", dict(options.node_selector)),
        ("affinity", options.affinity),
        ("tolerations", list(options.tolerations)),
    )
    return {name: value for name, value in optional if value}


def placement_digest(options: PodOptions) -> str:
    """Return what identifies a placement. The server may change the fields themselves, for example by defaults."""
    written = json.dumps(placement(options), sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:12]


def _resources(options: PodOptions) -> Json:
    limits = {
        "cpu": options.cpu_limit,
        "memory": options.memory_limit,
        "ephemeral-storage": options.ephemeral_storage,
    }
    requests = {
        "cpu": options.cpu_request,
        "memory": options.memory_request,
        "ephemeral-storage": min(_EPHEMERAL_REQUEST, options.ephemeral_storage, key=quantity),
    }
    return {"limits": limits | dict(options.extra_resources), "requests": requests | dict(options.extra_resources)}


def _container_security() -> Json:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
