"""Workspaces as bare Pods: one Pod is one start, found by label, reached by its IP.

A start is one create. A stop is one delete, bound to the Pod's uid, so that a late leader can only remove the Pod it meant.
Observations come from the watch: a workspace at rest causes no requests to the API server.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from codehub.adapters.health import answers, filled, secret_of
from codehub.adapters.kubernetes import helper as helpers
from codehub.adapters.kubernetes.cluster import Cluster, current_claim
from codehub.adapters.kubernetes.diagnosis import (
    Failed,
    Started,
    Starting,
    exit_reason,
    is_node_lost,
    node_lost_message,
    outlook,
)
from codehub.adapters.kubernetes.errors import AlreadyExists, InvalidObject
from codehub.adapters.kubernetes.manifests import (
    CONTAINER,
    HOME,
    PORT,
    SECRET_HEADER,
    SPEC,
    WORKSPACED,
    InstancePod,
    PodOptions,
    instance_pod,
)
from codehub.adapters.kubernetes.objects import INSTALLATION, ROLE, ROLE_INSTANCE, Claim, Pod, decode_pod
from codehub.adapters.kubernetes.quantity import quantity
from codehub.adapters.kubernetes.template_pods import with_template
from codehub.domain.errors import BackendDown, CodeHubError, NotFound, Terminal, Transient
from codehub.domain.model import Progress
from codehub.domain.profiles import AppProfile, Runs
from codehub.domain.routing import workspace_path
from codehub.ports.fence import Fence, Report
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, Upstream, spec_digest

# How long a pod may stay unschedulable before the attempt fails: an autoscaler needs a few minutes to add a node.
_SCHEDULING_TIMEOUT_S: Final = 300.0
# How often the events of a pod that makes no progress are read.
_EVENTS_EVERY_S: Final = 5.0
# Deleting a pod takes ten seconds on an idle node and more than a minute on a busy one.
_GONE_TIMEOUT_S: Final = 180.0
_POLL_INTERVAL_S: Final = 2.0


class KubernetesInstances:
    name = "kubernetes"
    runs = Runs.IMAGE

    def __init__(
        self,
        cluster: Cluster,
        options: PodOptions | None = None,
        *,
        helper_image: str = "",
        owner_name: Callable[[str], Awaitable[str]] | None = None,
        scheduling_timeout_s: float = _SCHEDULING_TIMEOUT_S,
        gone_timeout_s: float = _GONE_TIMEOUT_S,
    ) -> None:
        self._cluster = cluster
        self._options = options or PodOptions()
        self._helper_image = helper_image  # CodeHub's image; without it, workspaces run without `workspaced`
        self._owner_name = owner_name
        self._scheduling_timeout_s = scheduling_timeout_s
        self._gone_timeout_s = gone_timeout_s

    async def ping(self) -> None:
        await self._cluster.ping()

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        claim = current_claim(await self._cluster.home_claims(spec.workspace_id))
        if claim is None:
            raise Transient(f"the home of {spec.workspace_id} is not there; its PersistentVolumeClaim is missing")
        digest = spec_digest(spec, f"{self._options}/{claim.meta.name}")
        pods = await self._cluster.instance_pods(spec.workspace_id)
        right = None
        if not replace:
            live = (pod for pod in pods if not pod.meta.deleting and not pod.is_over)
            right = next((pod for pod in live if pod.meta.annotations.get(SPEC) == digest), None)
        # Remove all other pods first: two pods must never write to one home.
        await self._remove([pod for pod in pods if pod is not right], fence, ended_is_enough=True)
        if right is None:
            owner = "" if self._owner_name is None else await self._owner_name(spec.workspace_id)
            fence()
            report(Progress("start", 0, 1, "steps"))
            right = await self._create(spec, claim, digest, pods, owner)
        await self._wait_running(right, claim, report, fence)

    async def _create(self, spec: InstanceSpec, claim: Claim, digest: str, known: Sequence[Pod], owner: str) -> Pod:
        described = self._described(spec, claim, digest, start_name(spec.workspace_id, claim, known), owner)
        manifest = instance_pod(described, with_template(self._options, spec.size, spec.kubernetes))
        try:
            made = await self._cluster.client.create(self._cluster.pods_path, manifest)
        except AlreadyExists as error:
            made = await self._adopt(described.name, digest, error)
        except NotFound as error:
            raise Transient(f"the namespace {self._cluster.client.namespace} does not exist: {error}") from error
        except InvalidObject as error:
            raise Terminal(str(error)) from error
        return await self._cluster.pods.apply(made)

    async def _adopt(self, name: str, digest: str, error: AlreadyExists) -> dict[str, Any]:
        """Return the Pod of the same start, created by another leader or by a request of ours whose answer was lost."""
        raw = await self._cluster.client.get(f"{self._cluster.pods_path}/{name}")
        found = None if raw is None else decode_pod(raw)
        is_right = (
            found is not None
            and found.meta.labels.get(INSTALLATION) == self._cluster.installation_id
            and found.meta.annotations.get(SPEC) == digest
            and not found.meta.deleting
        )
        if raw is None or not is_right:
            raise Transient(f"the pod {name} is there already, and is not this start: {error}") from error
        return raw

    def _described(self, spec: InstanceSpec, claim: Claim, digest: str, name: str, owner: str) -> InstancePod:
        profile = spec.profile
        secret = secrets.token_urlsafe(32)
        values = {
            "port": str(profile.port),
            "socket": "",
            "base_path": workspace_path(spec.workspace_id),
            "home": HOME,
            "id": spec.workspace_id,
            "secret": secret,
        }
        env = {
            "HOME": HOME,
            "CODEHUB_WORKSPACE_ID": spec.workspace_id,
            "CODEHUB_BASE_PATH": values["base_path"],
            "CODEHUB_PORT": values["port"],
        }
        helper = None
        if self._helper_image:
            helper = helpers.Helper(
                self._helper_image,
                secrets.token_urlsafe(32),
                awaits_environment=spec.awaits_environment,
                owner=owner,
            )
            env |= helpers.environment(helper)
        # The template's variables never replace ours or those that the profile needs to run.
        env = dict(spec.env) | env | {key: filled(value, values) for key, value in profile.env.items()}
        header = secret_of(profile, secret)
        return InstancePod(
            name=name,
            installation=self._cluster.installation_id,
            workspace_id=spec.workspace_id,
            image=spec.image,
            port=profile.port,
            env=env,
            claim=claim.meta.name,
            claim_uid=claim.meta.uid,
            digest=digest,
            secret_header=f"{header[0]}: {header[1]}" if header is not None else "",
            helper=helper,
        )

    async def _wait_running(self, pod: Pod, claim: Claim, report: Report, fence: Fence) -> None:
        """Wait until the container runs. Report obstacles at once, and fail the start if one cannot resolve itself."""
        pods, uid = self._cluster.pods, pod.meta.uid
        unschedulable_since: float | None = None
        next_events = time.monotonic() + _EVENTS_EVERY_S
        seen = pod
        while True:
            match outlook(seen):
                case Started():
                    return
                case Failed(error):
                    if isinstance(error, Terminal):
                        fence()
                        await self._cluster.client.delete(f"{self._cluster.pods_path}/{pod.meta.name}", uid)
                        await self._wait_gone([pod], ended_is_enough=False)
                    raise error
                case Starting(says, is_unschedulable):
                    now = time.monotonic()
                    if now >= next_events:
                        next_events = now + _EVENTS_EVERY_S
                        says = await self._cluster.last_warning(uid, claim.meta.uid) or says
                    report(Progress(says, unit=""))
                    unschedulable_since = (unschedulable_since or now) if is_unschedulable else None
                    if unschedulable_since is not None and now - unschedulable_since >= self._scheduling_timeout_s:
                        raise Transient(says)
            await pods.wait_until(lambda known=seen: pods.get(uid) is not known, _POLL_INTERVAL_S)  # type: ignore[misc]
            found = pods.get(uid)
            if found is None or found.meta.deleting:
                raise Transient(f"the pod {pod.meta.name} was deleted while it was starting")
            seen = found

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        pods = await self._cluster.instance_pods(workspace_id)
        await self._remove([pod for pod in pods if not pod.has_ended], fence, ended_is_enough=True)

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        await self._remove(await self._cluster.instance_pods(workspace_id), fence, ended_is_enough=False)

    async def _remove(self, pods: Sequence[Pod], fence: Fence, *, ended_is_enough: bool) -> None:
        for pod in pods:
            fence()
            if not pod.meta.deleting:
                path = f"{self._cluster.pods_path}/{pod.meta.name}"
                if not await self._cluster.client.delete(path, pod.meta.uid):
                    await self._cluster.pods.forget(pod.meta.uid)
        released = [pod for pod in pods if pod.meta.deleting or is_node_lost(pod)]
        for pod in released:
            await self._cluster.release(pod, fence)
        await self._wait_gone(pods, ended_is_enough=ended_is_enough)

    async def _wait_gone(self, pods: Sequence[Pod], *, ended_is_enough: bool) -> None:
        table = self._cluster.pods

        def there() -> list[Pod]:
            found = (table.get(pod.meta.uid) for pod in pods)
            return [pod for pod in found if pod is not None and not (ended_is_enough and _has_ended(pod))]

        if await table.wait_until(lambda: not there(), self._gone_timeout_s):
            return
        left = there()
        if not left:
            return
        if is_node_lost(left[0]):
            raise Transient(node_lost_message(left[0]))
        raise Transient(f"the pod {left[0].meta.name} has not ended on the node {left[0].node or '(none)'}")

    async def status(self, workspace_id: str) -> InstanceStatus:
        return _status(await self._cluster.instance_pods(workspace_id))

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        found = {}
        for workspace_id, pods in (await self._cluster.pods.workspaces()).items():
            instances = [pod for pod in pods if pod.meta.labels.get(ROLE) == ROLE_INSTANCE]
            if instances:
                found[workspace_id] = _status(instances)
        return found

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        upstream = await self.resolve_upstream(workspace_id)
        return upstream is not None and await answers(upstream, workspace_id, profile)

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        return (await self.status(workspace_id)).upstream

    async def watch(self) -> AsyncIterator[str]:
        async for workspace_id in self._cluster.pods.changes():
            yield workspace_id
        raise BackendDown("the watch of pods ended")

    async def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        pods = await self._cluster.instance_pods(workspace_id)
        if not pods:
            return
        params = {"container": CONTAINER, "follow": str(follow).lower()}
        if tail is not None:
            params["tailLines"] = str(tail)
        path = f"{self._cluster.pods_path}/{_primary(pods).meta.name}/log"
        try:
            async with self._cluster.client.stream(path, params, read_timeout_s=None) as pieces:
                async for piece in pieces:
                    yield piece
        except (InvalidObject, NotFound):
            return  # the container has not started yet, or it is already gone

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        """Return resource usage if the cluster has a metrics server that CodeHub may query."""
        pods = await self._cluster.instance_pods(workspace_id)
        if not pods or not _primary(pods).is_running:
            return None
        namespace, name = self._cluster.client.namespace, _primary(pods).meta.name
        try:
            found = await self._cluster.client.get(f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}")
        except CodeHubError:
            return None
        return usage_of(found or {}, quantity(self._options.memory_limit))


def usage_of(found: Mapping[str, Any], memory_limit: float) -> Mapping[str, float] | None:
    """Return the usage in a metrics server's answer, or None if it has none that can be read."""
    try:
        used = [one["usage"] for one in found.get("containers") or ()]
        cpus, memory = (sum(quantity(each.get(name, "0")) for each in used) for name in ("cpu", "memory"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not used:
        return None
    return {"cpu_percent": 100.0 * cpus, "memory_bytes": memory, "memory_limit_bytes": memory_limit}


def start_name(workspace_id: str, claim: Claim, known: Sequence[Pod]) -> str:
    """Return one name for all attempts to start the same home from the same state.

    Of two leaders, one creates the pod and the API server refuses the other. Once a pod is gone, the name changes.
    """
    state = "\0".join([claim.meta.uid, *sorted(pod.meta.uid for pod in known)])
    return f"codehub-ws-{workspace_id}-{hashlib.sha256(state.encode()).hexdigest()[:10]}"


def _has_ended(pod: Pod) -> bool:
    """Return whether nothing in the pod runs any more, even if the object still exists."""
    return pod.has_ended or (bool(pod.containers) and all(one.terminated is not None for one in pod.containers))


def _primary(pods: Sequence[Pod]) -> Pod:
    """Return the pod that counts: the oldest live one, else the newest."""
    live = [pod for pod in pods if not pod.meta.deleting and not pod.is_over]
    if live:
        return live[0]
    going = [pod for pod in pods if not pod.has_ended]
    return (going or list(pods))[-1]


def _status(pods: Sequence[Pod]) -> InstanceStatus:
    if not pods:
        return ABSENT
    pod = _primary(pods)
    digest = pod.meta.annotations.get(SPEC, "")
    if is_node_lost(pod):
        lost = node_lost_message(pod)
        return InstanceStatus(True, False, pod.meta.uid, digest, None, lost, unknown=lost)
    if not pod.is_running or pod.meta.deleting or _has_ended(pod):
        return InstanceStatus(True, False, pod.meta.uid, digest, None, _why_not(pod))
    upstream = None
    port = pod.meta.annotations.get(PORT, "")
    if pod.ip and port.isdigit():
        name, colon, value = pod.meta.annotations.get(SECRET_HEADER, "").partition(": ")
        upstream = Upstream(pod.meta.uid, pod.ip, int(port), secret=(name, value) if colon else None)
    workspaced = helpers.upstream(pod.meta.uid, pod.ip, pod.meta.annotations.get(WORKSPACED, ""))
    return InstanceStatus(True, True, pod.meta.uid, digest, upstream, workspaced=workspaced)


def _why_not(pod: Pod) -> str | None:
    if pod.is_over or _has_ended(pod):
        return exit_reason(pod)
    if pod.meta.deleting:
        return "Terminating"
    match outlook(pod):
        case Starting(says):
            return says
        case Failed(error):
            return str(error)
        case Started():
            return None
