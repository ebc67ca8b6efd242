"""Archive and restore Jobs as the coordinator drives them: created or adopted by name, confirmed, removed.

A Job is bound to one operation and one claim. A leader that finds a Job of the same operation continues with it. A Job that
failed, belongs to another claim or was meant for other nodes is replaced.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

import httpx

from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.diagnosis import Failed, Started, Starting, is_node_lost, node_lost_message, outlook
from codehub.adapters.kubernetes.errors import AlreadyExists
from codehub.adapters.kubernetes.manifests import (
    OPERATION,
    PLACEMENT,
    TRANSFER_PORT,
    TRANSFER_SECRET,
    PodOptions,
    TransferJob,
    placement_digest,
    transfer_job,
)
from codehub.adapters.kubernetes.objects import (
    INSTALLATION,
    ROLE,
    ROLE_TRANSFER,
    WORKSPACE,
    Claim,
    Job,
    Pod,
    decode_job,
)
from codehub.adapters.kubernetes.template_pods import for_transfers
from codehub.adapters.kubernetes.transfer_client import Transfer
from codehub.adapters.objectstore.layout import Meta
from codehub.domain.errors import Conflict, Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import HomeKey

_POD_TIMEOUT_S: Final = 300.0
_GONE_TIMEOUT_S: Final = 180.0
_POLL_INTERVAL_S: Final = 2.0
# A request to end that is lost must not cost a complete transfer.
_FINISH_TRIES: Final = 3


def _attested(pod: Pod | None) -> tuple[object, object]:
    """Return the digest and the size that a pod left in its termination message."""
    ended = pod.main.terminated if pod is not None and pod.main is not None else None
    try:
        found = json.loads(ended.message) if ended is not None and ended.exit_code == 0 else {}
    except (ValueError, RecursionError):
        found = {}
    return (found.get("sha256"), found.get("bytes")) if isinstance(found, dict) else (None, None)


def _end_of(pod: Pod | None) -> str:
    """Return how the cluster reports a pod's end, for an error."""
    if pod is None:
        return "it is gone"
    ended = pod.main.terminated if pod.main is not None else None
    if ended is None:
        return f"its phase is {pod.phase}"
    return f"{ended.reason}, exit code {ended.exit_code}, message {ended.message[:200]!r}"


def job_name(workspace_id: str, operation: str) -> str:
    """Return a Job's name.

    It is also a label of its pod, limited to 63 characters, so it contains a digest of the operation.
    """
    return f"codehub-ws-{workspace_id}-{hashlib.sha256(operation.encode()).hexdigest()[:12]}"


class TransferJobs:
    def __init__(self, cluster: Cluster, image: str, options: PodOptions) -> None:
        self._cluster = cluster
        self._image = image
        self._options = options

    async def open(
        self, home: HomeKey, claim: Claim, operation: str, direction: str, report: Report, fence: Fence,
        *, read_only: bool = False,
    ) -> Transfer:  # fmt: skip
        """Create or adopt the Job of this operation, and return once its pod answers."""
        if not self._image:
            raise Transient("CODEHUB_K8S_IMAGE is empty: archives are made by Jobs that run CodeHub's own image")
        wanted = TransferJob(
            name=job_name(claim.meta.workspace_id, operation),
            installation=self._cluster.installation_id,
            workspace_id=claim.meta.workspace_id,
            operation=operation_label(operation),
            direction=direction,
            image=self._image,
            claim=claim.meta.name,
            claim_uid=claim.meta.uid,
            secret=secrets.token_urlsafe(32),
            read_only=read_only,
        )
        options = for_transfers(self._options, home.kubernetes)
        found = await self._find(wanted.name)
        if found is not None and not _fits(*found, wanted, options):
            await self._remove(claim.meta.workspace_id, [found[0]], fence)
            found = None
        if found is None:
            fence()
            found = await self._create(wanted, options)
        job, raw = found
        secret = str(raw["metadata"]["annotations"][TRANSFER_SECRET])
        pod = await self._wait_pod(job, claim, wanted.operation, report)
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        pods = self._cluster.pods

        def holds_its_address() -> bool:
            found = pods.get(pod.meta.uid)
            return found is not None and not found.is_over and found.ip == pod.ip

        return Transfer(f"http://{host}:{TRANSFER_PORT}", secret, pod.meta.name, pod.meta.uid, holds_its_address)

    async def confirm(self, transfer: Transfer, meta: Meta) -> None:
        """End the Job's pod. Raise unless the cluster reports that this very pod moved exactly these bytes.

        Who answers at its address proves nothing: the pod may be gone, and its address another workspace's.
        """
        pods = self._cluster.pods

        def ended() -> bool:
            found = pods.get(transfer.uid)
            return found is None or found.is_over

        for _ in range(_FINISH_TRIES):
            await transfer.finish()
            if await pods.wait_until(ended, _GONE_TIMEOUT_S / _FINISH_TRIES):
                break
        else:
            raise Transient(f"the pod {transfer.pod} of the transfer does not end")
        pod = pods.get(transfer.uid)
        if _attested(pod) != (meta.sha256, meta.size):
            raise Transient(
                f"the pod {transfer.pod} does not confirm what was transferred: it ended before, or never did it "
                f"({_end_of(pod)})"
            )

    async def _create(self, wanted: TransferJob, options: PodOptions) -> tuple[Job, dict[str, Any]]:
        try:
            raw = await self._cluster.client.create(self._cluster.jobs_path, transfer_job(wanted, options))
        except AlreadyExists as error:
            # Created by an earlier leader, or by our own request whose answer was lost.
            found = await self._find(wanted.name)
            if found is None or not _fits(*found, wanted, options):
                raise Conflict(f"the Job {wanted.name} belongs to another operation: {error}") from error
            return found
        return decode_job(raw), raw

    async def _find(self, name: str) -> tuple[Job, dict[str, Any]] | None:
        raw = await self._cluster.client.get(f"{self._cluster.jobs_path}/{name}")
        if raw is None:
            return None
        job = decode_job(raw)
        if job.meta.labels.get(INSTALLATION) != self._cluster.installation_id:
            raise Conflict(f"the Job {name} belongs to another installation: it is left alone")
        return job, raw

    async def _wait_pod(self, job: Job, claim: Claim, operation: str, report: Report) -> Pod:
        pods = self._cluster.pods

        def current() -> Pod | None:
            of_workspace = pods.known_of(claim.meta.workspace_id)
            ours = [
                pod
                for pod in of_workspace
                if pod.meta.labels.get(ROLE) == ROLE_TRANSFER
                and pod.meta.labels.get(OPERATION) == operation
                and _job_of(pod) == job.meta.uid
                and not pod.meta.deleting
            ]
            return ours[-1] if ours else None

        waited, seen, reason = 0.0, None, ""
        while waited < _POD_TIMEOUT_S:
            before = seen
            if not await pods.wait_until(lambda known=before: current() is not known, _POLL_INTERVAL_S):  # type: ignore[misc]
                waited += _POLL_INTERVAL_S
            seen = current()
            if seen is None:
                await self._check_alive(job)
                # A quota or a policy refuses the pod, not the Job: only an event of the Job says so.
                if waited and (warning := await self._cluster.last_warning(job.meta.uid)):
                    reason = warning
                    report(Progress(reason, unit=""))
                continue
            if seen.is_over:
                message = seen.main.terminated.message if seen.main and seen.main.terminated else ""
                raise Transient(
                    f"the pod {seen.meta.name} of the transfer ended: {message or seen.reason or seen.phase}"
                )
            match outlook(seen):
                case Started() if seen.ip:
                    if await _answers(seen):
                        return seen
                case Failed(error):
                    raise error
                case Starting(says):
                    warning = await self._cluster.last_warning(seen.meta.uid, claim.meta.uid) if waited else ""
                    reason = warning or says
                    report(Progress(reason, unit=""))
        raise Transient(
            f"the Job {job.meta.name} has no running pod after {_POD_TIMEOUT_S:g} s: {reason or 'no reason given'}"
        )

    async def _check_alive(self, job: Job) -> None:
        """Raise if no pod of the Job will ever come: it was deleted, or it failed.

        Current releases count a deleted pod as a failure and fail the Job, while 1.20 makes another pod.
        """
        found = await self._find(job.meta.name)
        if found is None or found[0].meta.uid != job.meta.uid or found[0].meta.deleting:
            raise Transient(f"the Job {job.meta.name} was deleted while it was in use")
        if found[0].failure or found[0].failed:
            raise Transient(f"the Job {job.meta.name} failed: {found[0].failure or 'its pod was deleted'}")

    async def remove_all(self, workspace_id: str, fence: Fence) -> None:
        """Remove every Job of this workspace, and end every pod of one, also of those that are gone already."""
        selector = f"{INSTALLATION}={self._cluster.installation_id},{WORKSPACE}={workspace_id},{ROLE}={ROLE_TRANSFER}"
        items, _ = await self._cluster.client.list_all(self._cluster.jobs_path, {"labelSelector": selector})
        await self._remove(workspace_id, [decode_job(item) for item in items], fence)

    async def _remove(self, workspace_id: str, jobs: Sequence[Job], fence: Fence) -> None:
        for job in jobs:
            fence()
            await self._cluster.client.delete(f"{self._cluster.jobs_path}/{job.meta.name}", job.meta.uid)
        await self._end_pods(workspace_id, fence)
        for job in jobs:
            if (await self._cluster.client.get(f"{self._cluster.jobs_path}/{job.meta.name}")) is not None:
                raise Transient(f"the Job {job.meta.name} is still being removed")

    async def _end_pods(self, workspace_id: str, fence: Fence) -> None:
        pods = self._cluster.pods
        await pods.objects()

        def left() -> list[Pod]:
            return [
                pod
                for pod in pods.known_of(workspace_id)
                if pod.meta.labels.get(ROLE) == ROLE_TRANSFER and _job_of(pod) and not pod.has_ended
            ]

        for pod in left():
            # The garbage collector would also do it, but half a minute later on a busy cluster.
            fence()
            await self._cluster.client.delete(f"{self._cluster.pods_path}/{pod.meta.name}", pod.meta.uid)
            if pod.meta.deleting or is_node_lost(pod):
                await self._cluster.release(pod, fence)
        if not await pods.wait_until(lambda: not left(), _GONE_TIMEOUT_S):
            lost = [pod for pod in left() if is_node_lost(pod)]
            raise Transient(node_lost_message(lost[0]) if lost else f"the pod {left()[0].meta.name} has not ended")


def _fits(job: Job, raw: dict[str, Any], wanted: TransferJob, options: PodOptions) -> bool:
    """Return whether an existing Job can still serve this operation."""
    owners = {owner.get("uid") for owner in raw["metadata"].get("ownerReferences") or ()}
    spec = raw["spec"]["template"]["spec"]
    # By name: admission rules may put containers and volumes of their own before ours.
    container, volume = _called("transfer", spec.get("containers")), _called("home", spec.get("volumes"))
    command = container.get("command") or []
    mounted = bool((volume.get("persistentVolumeClaim") or {}).get("readOnly"))
    return (
        not (job.failed or job.succeeded or job.failure or job.meta.deleting)
        and wanted.claim_uid in owners
        and wanted.direction in command
        and mounted == wanted.read_only
        # A Job that waits for nodes of a template that was corrected since would wait for ever.
        and job.meta.annotations.get(PLACEMENT) == placement_digest(options)
    )


def _called(name: str, items: list[dict[str, Any]] | None) -> dict[str, Any]:
    return next((one for one in items or () if one.get("name") == name), {})


def _job_of(pod: Pod) -> str:
    """Return the uid of the Job that created the pod. Before 1.27, only the label without a prefix exists."""
    labels = pod.meta.labels
    return labels.get("batch.kubernetes.io/controller-uid") or labels.get("controller-uid", "")


def operation_label(operation: str) -> str:
    return hashlib.sha256(operation.encode()).hexdigest()[:12]


async def _answers(pod: Pod) -> bool:
    """Return whether the server listens yet: the container runs before its program listens."""
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    try:
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            async with client.stream("GET", f"http://{host}:{TRANSFER_PORT}/") as response:
                return response.status_code == 401
    except httpx.HTTPError:
        return False
