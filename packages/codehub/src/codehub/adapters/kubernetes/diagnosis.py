"""Interprets a pod's status for a caller that waits for it, quoting the kubelet and the scheduler. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from codehub.adapters.kubernetes.objects import Pod
from codehub.domain.errors import CodeHubError, ImagePullFailed, Transient

_LONGEST = 500
_PULL = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull", "InvalidImageName",
        "SignatureValidationFailed", "ImageInspectError",
    }
)  # fmt: skip
_CANNOT_RUN = frozenset(
    {
        "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError",
        "PostStartHookError",
    }
)  # fmt: skip
# The registry may answer in a minute: these errors are retried. All others need a person.
_PASSING = ("timeout", "timed out", "connection reset", "eof", "too many requests", "503", "502", "temporary failure")
# Why a kubelet itself reports that a pod is not ready.
_OF_THE_KUBELET = frozenset(
    {
        "ContainersNotReady", "ContainersNotInitialized", "ReadinessGatesNotReady", "PodCompleted", "PodFailed",
        "UnknownContainerStatuses",
    }
)  # fmt: skip
_NO_NODE = (
    "add nodes, lower what workspaces request (CODEHUB_K8S_CPU_REQUEST, CODEHUB_K8S_MEMORY_REQUEST), or correct the "
    "template's node selector and tolerations"
)
_ADVICE = {
    "Unschedulable": _NO_NODE,
    "FailedScheduling": _NO_NODE,
    "OOMKilled": "raise its memory (CODEHUB_INSTANCE_MEMORY)",
    "Evicted": "raise its memory request or its local storage (CODEHUB_K8S_EPHEMERAL_STORAGE)",
    "CreateContainerConfigError": "check what the image runs as: it must be a user other than root",
    "FailedMount": "check the volume's driver on that node",
    "FailedAttachVolume": "check the volume's driver on that node",
    "ProvisioningFailed": "check the storage class (CODEHUB_K8S_STORAGE_CLASS)",
    "FailedCreatePodSandBox": "check the node's container runtime and network plug-in",
}


@dataclass(frozen=True, slots=True)
class Starting:
    """The pod is starting or waits for something, which `says` describes."""

    says: str
    is_unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """The container runs or has already exited. `status` has the details."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: CodeHubError


Outlook = Starting | Started | Failed


def outlook(pod: Pod) -> Outlook:
    """Return what to expect of a pod that was created."""
    if pod.is_running or (pod.main is not None and pod.main.terminated is not None):
        # A mesh's native sidecar is an init container that ends after the main one, often with an error.
        return Started()
    for container in pod.containers:
        ended = container.terminated
        if container.is_init and ended is not None and ended.exit_code != 0:
            cause = _cut(ended.message) or f"exit code {ended.exit_code}"
            return Failed(Transient(f"the pod's init container {container.name} failed: {cause}"))
    if pod.is_over:
        return Started()
    for container in pod.containers:
        if container.waiting is None:
            continue
        reason, message = container.waiting
        if reason in _PULL:
            return Failed(_pull_error(reason, message))
        if reason in _CANNOT_RUN:
            return Failed(Transient(advised(reason, message)))
        if reason not in ("", "ContainerCreating", "PodInitializing"):
            return Starting(_joined(reason, message))
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        is_waiting = "waiting for first consumer" in scheduled.message
        return Starting(
            advised(scheduled.reason, scheduled.message), scheduled.reason == "Unschedulable" and not is_waiting
        )
    if pod.node:
        return Starting(f"ContainerCreating on {pod.node}")
    return Starting("waiting for the scheduler")


def _pull_error(reason: str, message: str) -> CodeHubError:
    text = _joined(reason, message)
    # While the kubelet backs off, current releases repeat the cause: `Back-off pulling image "…": ErrImagePull: …`.
    if reason in ("ErrImagePull", "ImagePullBackOff") and any(sign in message.lower() for sign in _PASSING):
        return Transient(text)
    return ImagePullFailed(f"{text}. Check the image's name, and the pull secret if its registry is private")


def exit_reason(pod: Pod) -> str | None:
    """Return why a pod ended, or None if it exited normally or was stopped on request."""
    if pod.reason:  # Evicted, Preempting, NodeShutdown, …: the pod's reason is more specific than its containers'
        return advised(pod.reason, pod.message)
    disrupted = pod.condition("DisruptionTarget")  # 1.25: preempted, drained or taken off its node
    if disrupted is not None and disrupted.status == "True":
        return advised(disrupted.reason, disrupted.message)
    ended = pod.main.terminated if pod.main is not None else None
    if ended is not None and ended.reason == "OOMKilled":
        return f"OOMKilled; {_ADVICE['OOMKilled']}"
    if ended is not None and ended.exit_code not in (0, 143):
        return f"ExitCode:{ended.exit_code}"
    return None


def is_node_lost(pod: Pod) -> bool:
    """Return whether the kubelet stopped answering: the container was running and the node controller marked it not ready.

    A kubelet that answers gives a reason, such as a readiness gate that an admission webhook added to our pod.
    """
    ready = pod.condition("Ready")
    return (
        pod.is_running and ready is not None and ready.status != "True" and ready.reason not in _OF_THE_KUBELET
    ) or pod.reason == "NodeLost"


def node_lost_message(pod: Pod) -> str:
    ready = pod.condition("Ready")
    since = f" since {ready.since}" if ready is not None and ready.since else ""
    return (
        f"the node {pod.node} does not answer{since}; the pod {pod.meta.name} may still run there. It is released when the "
        "node comes back, is removed from the cluster or is tainted node.kubernetes.io/out-of-service"
    )


def last_warning(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the newest Warning of some events. Its content does not appear in any status."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    if not warnings:
        return ""
    newest = max(warnings, key=_when)
    reason = str(newest.get("reason") or "")
    return advised(reason, str(newest.get("message") or ""))


def _when(event: Mapping[str, Any]) -> str:
    times = (
        event.get("lastTimestamp"),
        (event.get("series") or {}).get("lastObservedTime"),  # the scheduler's, instead of lastTimestamp
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return str(next((time for time in times if time), ""))


def advised(reason: str, message: str) -> str:
    """Return the cluster's message, and how to fix it if that is known."""
    text = _joined(reason, message)
    return f"{text}; {_ADVICE[reason]}" if reason in _ADVICE else text


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {_cut(message)}" if message else reason


def _cut(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
