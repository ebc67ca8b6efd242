"""One cluster as one installation sees it: the client, the watches that instances and homes share, and names and paths.

Objects with another installation's label are not ours: selectors never match them, and names contain the workspace's id.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.diagnosis import last_warning
from codehub.adapters.kubernetes.errors import Forbidden
from codehub.adapters.kubernetes.manifests import COMPLETE, COMPLETED_AT
from codehub.adapters.kubernetes.objects import (
    INSTALLATION,
    ROLE,
    ROLE_HOME,
    ROLE_INSTANCE,
    Claim,
    Node,
    Pod,
    decode_claim,
    decode_node,
    decode_pod,
)
from codehub.adapters.kubernetes.watch import Informer
from codehub.domain.errors import BackendDown, CodeHubError
from codehub.ports.fence import Fence


class Cluster:
    def __init__(self, client: ApiClient, installation_id: str, rand: Callable[[], float] = random.random) -> None:
        self.client = client
        self.installation_id = installation_id
        core = f"/api/v1/namespaces/{client.namespace}"
        self.pods_path = f"{core}/pods"
        self.claims_path = f"{core}/persistentvolumeclaims"
        self.events_path = f"{core}/events"
        self.jobs_path = f"/apis/batch/v1/namespaces/{client.namespace}/jobs"
        ours = f"{INSTALLATION}={installation_id}"
        self.pods: Informer[Pod] = Informer(client, self.pods_path, decode_pod, ours, rand)
        self.claims: Informer[Claim] = Informer(
            client, self.claims_path, decode_claim, f"{ours},{ROLE}={ROLE_HOME}", rand
        )

    async def close(self) -> None:
        await self.pods.close()
        await self.claims.close()
        await self.client.close()

    async def ping(self) -> None:
        """Raise BackendDown unless the API server answers and allows us to list our pods."""
        try:
            page = await self.client.list_page(self.pods_path, {"limit": "1"})
            if not page.get("items"):
                await self.client.check_namespace()
        except BackendDown:
            raise
        except CodeHubError as error:
            raise BackendDown(str(error)) from error

    async def instance_pods(self, workspace_id: str) -> list[Pod]:
        return [pod for pod in await self.pods.of(workspace_id) if pod.meta.labels.get(ROLE) == ROLE_INSTANCE]

    async def home_claims(self, workspace_id: str) -> list[Claim]:
        """Return the claims known to the watch, oldest first."""
        return await self.claims.of(workspace_id)

    async def node(self, name: str) -> Node | None:
        """Return a node, or None if it is gone. Raises Forbidden without the optional ClusterRole."""
        item = await self.client.get(f"/api/v1/nodes/{name}")
        return None if item is None else decode_node(item)

    async def is_released(self, pod: Pod) -> bool:
        """Return whether the node is certainly off: removed from the cluster, or marked by an operator's taint."""
        if not pod.node:
            return False
        try:
            node = await self.node(pod.node)
        except (Forbidden, BackendDown):
            return False
        return node is None or node.out_of_service

    async def release(self, pod: Pod, fence: Fence) -> None:
        """Remove a pod without its kubelet's confirmation if its node is certainly off, and only then."""
        if await self.is_released(pod):
            fence()
            await self.client.delete(f"{self.pods_path}/{pod.meta.name}", pod.meta.uid, grace_s=0)

    async def last_warning(self, *uids: str) -> str:
        """Return the newest Warning event about these objects. Empty if there is none or if events may not be read."""
        found = []
        for uid in uids:
            try:
                items, _ = await self.client.list_all(
                    self.events_path, {"fieldSelector": f"involvedObject.uid={uid}"}
                )
            except CodeHubError:
                continue
            found.extend(items)
        return last_warning(found)


def current_claim(claims: list[Claim]) -> Claim | None:
    """Return the home among a workspace's claims: the oldest that is complete and not being deleted.

    A second one can only be a deposed leader's late creation, which is younger than the recorded one.
    """
    return min(filter(is_whole, claims), key=_age, default=None)


def _age(claim: Claim) -> tuple[str, int, str]:
    """Return what orders claims from old to new, also those of the same second."""
    version = claim.meta.annotations.get(COMPLETED_AT, "")
    return claim.meta.created, int(version) if version.isdigit() else 0, claim.meta.uid


def is_whole(claim: Claim) -> bool:
    return not claim.meta.deleting and claim.meta.annotations.get(COMPLETE) == "true"
