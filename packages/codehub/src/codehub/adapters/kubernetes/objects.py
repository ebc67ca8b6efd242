"""The few fields of Kubernetes objects that CodeHub reads, as small typed values. Pure: JSON in, values out.

A field that is missing or has another type gets its default: a newer server may omit fields that an older one sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# All labels and annotations of CodeHub have this prefix. Those of users must not.
PREFIX = "codehub.dev/"
INSTALLATION = PREFIX + "installation"
WORKSPACE = PREFIX + "workspace"
ROLE = PREFIX + "role"
MANAGED_BY = "app.kubernetes.io/managed-by"

ROLE_INSTANCE, ROLE_HOME, ROLE_TRANSFER = "instance", "home", "transfer"
# The containers that CodeHub asks for, one in each of its pods. Admission webhooks may add others, such as a mesh's proxy.
MAIN_CONTAINERS = ("ide", "transfer", "probe")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class Meta:
    name: str
    namespace: str
    uid: str
    resource_version: str
    created: str = ""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def workspace_id(self) -> str:
        return self.labels.get(WORKSPACE, "")


@dataclass(frozen=True, slots=True)
class Terminated:
    reason: str
    message: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container's status: exactly one of waiting, running, terminated."""

    name: str
    running: bool = False
    waiting: tuple[str, str] | None = None  # reason, message
    terminated: Terminated | None = None
    is_init: bool = False


@dataclass(frozen=True, slots=True)
class PodCondition:
    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class Pod:
    meta: Meta
    phase: str = ""
    ip: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    containers: tuple[ContainerState, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Return whether all containers have ended for good: restartPolicy is Never."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def main(self) -> ContainerState | None:
        """Return the status of the container that CodeHub asked for."""
        return next((one for one in self.containers if one.name in MAIN_CONTAINERS and not one.is_init), None)

    @property
    def is_running(self) -> bool:
        return self.phase == "Running" and self.main is not None and self.main.running

    @property
    def is_over(self) -> bool:
        """Return whether the main container has ended, even if another keeps the pod alive."""
        return self.has_ended or (self.main is not None and self.main.terminated is not None)

    def condition(self, kind: str) -> PodCondition | None:
        return next((one for one in self.conditions if one.type == kind), None)


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim."""

    meta: Meta
    phase: str = ""
    volume: str = ""
    storage_class: str = ""
    capacity: str = ""
    access_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    meta: Meta
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    failure: str = ""  # why it failed, from its conditions


@dataclass(frozen=True, slots=True)
class Node:
    meta: Meta
    ready: str = "Unknown"  # True, False or Unknown, as in the API
    ready_since: str = ""
    out_of_service: bool = False


def decode_meta(item: Mapping[str, Any]) -> Meta:
    meta = item.get("metadata") or {}
    return Meta(
        name=str(meta.get("name") or ""),
        namespace=str(meta.get("namespace") or ""),
        uid=str(meta.get("uid") or ""),
        resource_version=str(meta.get("resourceVersion") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        deleting=bool(meta.get("deletionTimestamp")),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
    )


def decode_pod(item: Mapping[str, Any]) -> Pod:
    status, spec = item.get("status") or {}, item.get("spec") or {}
    before, own = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    return Pod(
        meta=decode_meta(item),
        phase=str(status.get("phase") or ""),
        ip=str(status.get("podIP") or ""),
        node=str(spec.get("nodeName") or ""),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        conditions=tuple(_condition(one) for one in status.get("conditions") or ()),
        containers=(*(_container(one, is_init=True) for one in before), *map(_container, own)),
    )


def _condition(item: Mapping[str, Any]) -> PodCondition:
    return PodCondition(
        type=str(item.get("type") or ""),
        status=str(item.get("status") or ""),
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        since=str(item.get("lastTransitionTime") or ""),
    )


def _container(item: Mapping[str, Any], *, is_init: bool = False) -> ContainerState:
    state = item.get("state") or {}
    waiting, ended = state.get("waiting"), state.get("terminated")
    return ContainerState(
        name=str(item.get("name") or ""),
        running=state.get("running") is not None,
        waiting=(str(waiting.get("reason") or ""), str(waiting.get("message") or ""))
        if waiting is not None
        else None,
        terminated=(
            Terminated(
                str(ended.get("reason") or ""), str(ended.get("message") or ""), int(ended.get("exitCode") or 0)
            )
            if ended is not None
            else None
        ),
        is_init=is_init,
    )


def decode_claim(item: Mapping[str, Any]) -> Claim:
    status, spec = item.get("status") or {}, item.get("spec") or {}
    return Claim(
        meta=decode_meta(item),
        phase=str(status.get("phase") or ""),
        volume=str(spec.get("volumeName") or ""),
        storage_class=str(spec.get("storageClassName") or ""),
        capacity=str((status.get("capacity") or {}).get("storage") or ""),
        access_modes=tuple(map(str, spec.get("accessModes") or ())),
    )


def decode_job(item: Mapping[str, Any]) -> Job:
    status = item.get("status") or {}
    failure = next(
        (
            f"{one.get('reason') or 'Failed'}: {one.get('message') or ''}"
            for one in status.get("conditions") or ()
            # FailureTarget (1.31) comes first: the Job has failed, and its pods are still ending.
            if one.get("type") in ("Failed", "FailureTarget") and one.get("status") == "True"
        ),
        "",
    )
    return Job(
        meta=decode_meta(item),
        active=int(status.get("active") or 0),
        succeeded=int(status.get("succeeded") or 0),
        failed=int(status.get("failed") or 0),
        failure=failure,
    )


def decode_node(item: Mapping[str, Any]) -> Node:
    ready: Mapping[str, Any] = next(
        (one for one in (item.get("status") or {}).get("conditions") or () if one.get("type") == "Ready"), {}
    )
    taints = (item.get("spec") or {}).get("taints") or ()
    return Node(
        meta=decode_meta(item),
        ready=str(ready.get("status") or "Unknown"),
        ready_since=str(ready.get("lastTransitionTime") or ""),
        out_of_service=any(one.get("key") == OUT_OF_SERVICE for one in taints),
    )
