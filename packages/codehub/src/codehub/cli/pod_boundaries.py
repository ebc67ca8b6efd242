"""The boundaries that `codehub doctor` tries on Kubernetes, from inside a Pod like a workspace's."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.probes import MEMORY_BYTES, PodNeighbour, PodProbes
from codehub.cli.boundary_targets import Fixes, Place, answers, bait, metadata, own_address, parts
from codehub.domain.boundaries import Attempt, Boundary, Judgement, Means, Outcome, judge
from codehub.settings import Settings
from codehub.wiring import kubernetes_options

_ALONE_S = 10  # how much longer a probe lives whose doctor was killed
# The nodes may have to pull CodeHub's image first, and to place two Pods.
_START_TIMEOUT_S = 120
_KUBELET_PORT = 10250
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
# In the cluster each part has a Pod of its own; deploy/kubernetes/base names their Services.
_SERVICES: Final = {"api": "api:80", "proxy": "proxy:80"}
_FIXES = Fixes(
    "use a network plug-in that enforces NetworkPolicies (Calico, Cilium, …), and apply network-policies.yaml; if the "
    "cluster has public addresses, add them to its `except`",
    "use nodes whose default seccomp profile forbids it, and do not mount service accounts into workspaces",
    "use nodes that enforce memory limits",
)


async def try_in_pods(settings: Settings, deadline_s: int) -> list[Judgement]:
    options = kubernetes_options(settings)
    client = ApiClient(options.access())
    probes = PodProbes(client, options.image, options.pods, _START_TIMEOUT_S + deadline_s + _ALONE_S)
    boundaries: list[Boundary] = []
    outcomes: dict[Attempt, Outcome] = {}
    here = own_address() or "127.0.0.1"
    try:
        await probes.remove_abandoned()
        async with asyncio.timeout(_START_TIMEOUT_S):
            neighbour = await probes.start_neighbour()
        async with bait(_FIXES, here, also_gateway=False) as baits:
            try:
                async with asyncio.timeout(_START_TIMEOUT_S + deadline_s):
                    services = _SERVICES if os.environ.get("KUBERNETES_SERVICE_HOST") else {}
                    boundaries += await parts(settings, _FIXES, here, **services)
                    boundaries += [*baits, *await _cluster(neighbour), metadata(_FIXES), *_limits()]
                    await probes.attack([a for boundary in boundaries for a in boundary.attempts], outcomes)
            except TimeoutError:
                if not boundaries:
                    raise TimeoutError(f"it did not answer within {deadline_s} s") from None
    finally:
        await asyncio.shield(probes.remove())
        await client.close()
    return [judge(boundary, outcomes) for boundary in boundaries]


async def _cluster(other: PodNeighbour) -> list[Boundary]:
    server = Attempt(Means.TCP, "$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT")
    return [
        Boundary("reach the Kubernetes API server", (server,), _FIXES.network),
        await _kubelet(other.node_address),
        Boundary("reach another workspace's ports", (Attempt(Means.TCP, other.address, other.port),), _FIXES.network),
        Boundary(
            "reach another workspace's abstract sockets", (Attempt(Means.ABSTRACT, other.abstract),), _FIXES.files
        ),
        Boundary("read a service account's token", (Attempt(Means.READ, _TOKEN),), _FIXES.files),
    ]


async def _kubelet(address: str) -> Boundary:
    """Whoever reaches it can at least ask it; with weak settings, it runs commands in every Pod of its node."""
    name, place = "reach the node's kubelet", Place(addresses=(address,), port=_KUBELET_PORT)
    if address and await answers(place):
        return Boundary(name, (Attempt(Means.TCP, address, _KUBELET_PORT),), _FIXES.network)
    return Boundary(
        name, (), _FIXES.network, "it does not answer us either", "run `codehub doctor` inside the cluster"
    )


def _limits() -> list[Boundary]:
    return [
        Boundary("make a user namespace", (Attempt(Means.USER_NAMESPACE),), _FIXES.files),
        Boundary(
            "start more processes than its limit",
            (),
            _FIXES.limits,
            "Kubernetes has no such limit for a Pod; the kubelet's podPidsLimit is one for all",
            "set podPidsLimit in the kubelets' configuration",
        ),
        Boundary("take more memory than its limit", (Attempt(Means.MEMORY, amount=2 * MEMORY_BYTES),), _FIXES.limits),
    ]
