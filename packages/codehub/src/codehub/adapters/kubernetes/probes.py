"""Throw-away Pods in which `codehub doctor` tries the boundaries: labelled and restricted like workspaces, smaller limits.

They run CodeHub's own image, which every node that runs workspaces can pull, and are given the probe's source. Whatever
happens they end: by this process, by their deadline. What a killed doctor left is removed by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from codehub.adapters import boundary_probe
from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.diagnosis import Failed, outlook
from codehub.adapters.kubernetes.errors import InvalidObject
from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.kubernetes.objects import INSTALLATION, Pod, decode_pod
from codehub.adapters.kubernetes.preflight import probe_pod
from codehub.domain.boundaries import Attempt, Outcome
from codehub.domain.errors import CodeHubError, NotFound, Transient

MEMORY_BYTES: Final = 128 << 20  # the limit of `probe_pod`
_POLL_INTERVAL_S: Final = 0.2
_HOME: Final = "/tmp"  # noqa: S108 - in the Pod's own file system


@dataclass(frozen=True, slots=True)
class PodNeighbour:
    """Another workspace's Pod, and what it has that the first must not reach."""

    address: str
    port: int
    abstract: str
    node_address: str


class PodProbes:
    def __init__(self, client: ApiClient, image: str, options: PodOptions, lifetime_s: int) -> None:
        self._client = client
        self._image = image
        self._options = options
        self._lifetime_s = lifetime_s
        self._path = f"/api/v1/namespaces/{client.namespace}/pods"
        self._made: list[Pod] = []

    async def start_neighbour(self) -> PodNeighbour:
        abstract = f"codehub-doctor-{secrets.token_hex(4)}"
        made = await self._start({"abstract": abstract})
        async for line in self._lines(made):
            if "port" in line:
                address, node_address = await self._addresses(made)
                return PodNeighbour(address, int(str(line["port"])), abstract, node_address)
        raise Transient("the second workspace ended before it listened")

    async def _addresses(self, made: Pod) -> tuple[str, str]:
        """Return the Pod's address and its node's. The kubelet reports them later than the Pod's first output."""
        while True:
            raw = await self._client.get(f"{self._path}/{made.meta.name}") or {}
            pod = decode_pod(raw)
            if pod.ip:
                return pod.ip, str((raw.get("status") or {}).get("hostIP") or "")
            if not raw or pod.is_over:
                raise Transient("the second workspace ended before it had an address")
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def attack(self, attempts: Sequence[Attempt], outcomes: dict[Attempt, Outcome]) -> None:
        """From a Pod of its own, into `outcomes`. A caller who stops waiting keeps what was seen until then."""
        plan = {"interface": "", "network_s": 0, "attempts": [asdict(attempt) for attempt in attempts]}
        made = await self._start(plan)
        async for line in self._lines(made):
            if "number" in line:
                succeeded = line["succeeded"]
                outcome = Outcome(succeeded if isinstance(succeeded, bool) else None, str(line["message"]))
                outcomes[attempts[int(str(line["number"]))]] = outcome
            elif line.get("done"):
                return

    async def remove(self) -> None:
        for pod in self._made:
            await self._delete(pod)

    async def remove_abandoned(self) -> None:
        """Remove the Pods that a killed doctor left, once they have ended."""
        items, _ = await self._client.list_all(self._path, {"labelSelector": f"{INSTALLATION}=doctor"})
        for pod in map(decode_pod, items):
            if pod.has_ended:
                await self._delete(pod)

    async def _delete(self, pod: Pod) -> None:
        with contextlib.suppress(CodeHubError):
            await self._client.delete(f"{self._path}/{pod.meta.name}", pod.meta.uid, grace_s=0)

    async def _start(self, plan: dict[str, object]) -> Pod:
        body = attacking_pod(self._image, self._options, {**plan, "seconds": self._lifetime_s})
        made = decode_pod(await self._client.create(self._path, body))
        self._made.append(made)
        return made

    async def _lines(self, made: Pod) -> AsyncIterator[dict[str, object]]:
        """Yield what the probe reports, until it ends."""
        seen = 0
        while True:
            raw = await self._client.get(f"{self._path}/{made.meta.name}")
            pod = decode_pod(raw or {})
            ended = raw is None or pod.is_over
            forecast = outlook(pod)
            if not ended and isinstance(forecast, Failed):
                raise Transient(str(forecast.error))
            whole = (await self._log(made)).rpartition("\n")[0].splitlines()
            for line in whole[seen:]:
                if line.startswith(boundary_probe.MARK):
                    yield json.loads(line.removeprefix(boundary_probe.MARK))
            seen = len(whole)
            if ended:
                return
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _log(self, pod: Pod) -> str:
        try:
            async with self._client.stream(
                f"{self._path}/{pod.meta.name}/log", {"container": "probe"}, read_timeout_s=30.0
            ) as pieces:
                return b"".join([piece async for piece in pieces]).decode(errors="replace")
        except (InvalidObject, NotFound):
            return ""  # its container has not started yet, or it is already gone


def attacking_pod(image: str, options: PodOptions, plan: dict[str, object]) -> dict[str, Any]:
    """Return the Pod of the cluster check, running the probe instead."""
    pod = probe_pod(image, options)
    pod["spec"]["activeDeadlineSeconds"] = plan["seconds"]
    container = pod["spec"]["containers"][0]
    container["command"] = [
        "python3",
        "-I",
        "-S",
        "-B",
        "-c",
        inspect.getsource(boundary_probe),
        f"{_HOME}/probe.sock",
    ]
    container["env"] = [
        {"name": boundary_probe.VARIABLE, "value": json.dumps(plan)},
        {"name": "HOME", "value": _HOME},
    ]
    return pod
