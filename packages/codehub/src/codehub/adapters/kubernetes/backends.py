"""Creates the Kubernetes backends from their options: one cluster, shared by instances and homes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from codehub.adapters.homes.work import Workers
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.homes import ClaimOptions, PvcHomes
from codehub.adapters.kubernetes.instances import KubernetesInstances
from codehub.adapters.kubernetes.kubeconfig import ClusterAccess, find_access
from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.kubernetes.preflight import unmet_needs
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import CodeHubError

_log = structlog.get_logger()
_PROBE_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """The cluster to use, and how pods and claims are created there."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    image: str = ""  # CodeHub's own image, for archive and restore Jobs
    pods: PodOptions = field(default_factory=PodOptions)
    claims: ClaimOptions = field(default_factory=ClaimOptions)

    def access(self, environment: Mapping[str, str] | None = None) -> ClusterAccess:
        """Return how to access the cluster.

        Raises Invalid if no cluster is configured, or if the configuration is wrong.
        """
        given = dict(os.environ if environment is None else environment)
        if self.kubeconfig:
            given["KUBECONFIG"] = self.kubeconfig
        return find_access(given, self.context, self.namespace)


@dataclass(frozen=True, slots=True)
class KubernetesBackends:
    cluster: Cluster
    instances: KubernetesInstances
    homes: PvcHomes
    claims: ClaimOptions

    async def report_unusable(self, part: str = "") -> None:
        """Log at start why the cluster cannot be used. Everything else works without it.

        `part` (api, proxy or coordinator) also checks each permission that it needs; the coordinator's storage class too.
        """
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                await self.cluster.ping()
                for missing in await unmet_needs(self.cluster.client, self.claims, part):
                    _log.error(
                        "the Kubernetes cluster lacks what CodeHub needs", error=missing.message, fix=missing.fix
                    )
        except (CodeHubError, TimeoutError) as error:
            _log.error(
                "the Kubernetes cluster cannot be used; its workspaces are Unknown until it can",
                error=str(error) or f"no answer within {_PROBE_TIMEOUT_S:g} s",
                fix="run `codehub doctor`",
            )


def open_kubernetes(
    options: KubernetesOptions,
    installation: str,
    store: Store,
    workers: Workers,
    owner_name: Callable[[str], Awaitable[str]] | None = None,
) -> KubernetesBackends:
    """Create the backends without contacting the cluster. While it is unreachable, only its own workspaces are Unknown."""
    cluster = Cluster(ApiClient(options.access()), installation)
    homes = PvcHomes(cluster, store, options.image, claims=options.claims, pods=options.pods, workers=workers)
    instances = KubernetesInstances(cluster, options.pods, helper_image=options.image, owner_name=owner_name)
    return KubernetesBackends(cluster, instances, homes, options.claims)
