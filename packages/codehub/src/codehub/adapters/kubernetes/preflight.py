"""The cluster checks of `codehub doctor`: whether everything that CodeHub does in the cluster would work.

The permissions of each part are exactly those of deploy/kubernetes/workspaces/role.yaml. A test keeps the two in sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from codehub.adapters.kubernetes.client import ApiClient
from codehub.adapters.kubernetes.cluster import Cluster
from codehub.adapters.kubernetes.diagnosis import Failed, Started, Starting, outlook
from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.manifests import UID, PodOptions, claim_spec, labels, owner, placement
from codehub.adapters.kubernetes.objects import ROLE_INSTANCE, Pod, decode_meta, decode_pod
from codehub.domain.errors import CodeHubError, ImagePullFailed, NotFound

# (API group, resource, subresource, verbs)
Permissions = tuple[tuple[str, str, str, tuple[str, ...]], ...]
# The coordinator's.
PERMISSIONS: Final[Permissions] = (
    ("", "pods", "", ("get", "list", "watch", "create", "delete")),
    ("", "pods", "log", ("get",)),
    ("", "persistentvolumeclaims", "", ("get", "list", "watch", "create", "patch", "delete")),
    ("batch", "jobs", "", ("get", "list", "create", "delete")),
    ("", "events", "", ("list",)),
)
_LOOK_UP: Final = ("", "pods", "", ("list", "watch"))
PERMISSIONS_OF: Final[Mapping[str, Permissions]] = {
    "coordinator": PERMISSIONS,
    "api": (_LOOK_UP, ("", "pods", "log", ("get",))),
    "proxy": (_LOOK_UP,),
}
_OLDEST: Final = (1, 20)
_ONCE_POD, _HAS_ONCE_POD = "ReadWriteOncePod", (1, 29)
_PROBE_TIMEOUT_S: Final = 120.0
_MOST_REFUSALS: Final = 40  # polls
_VOLUME: Final = "/volume"
_FIX_CLASS: Final = (
    "set CODEHUB_K8S_STORAGE_CLASS to a class that `kubectl get storageclass` lists, or check its driver"
)
_FIX_IMAGE: Final = (
    "build it by images/build.sh. Push it to a registry that the nodes pull from and name that in CODEHUB_IMAGE_REGISTRY, "
    "or import it on each node: docker save IMAGE | ctr -n k8s.io images import -"
)
# Runs in a pod that is labelled like a workspace, which must not reach the API server's address and writes to its home.
_PROBE: Final = (
    "import os,socket,sys\n"
    "s=socket.socket(socket.AF_INET6 if ':' in os.environ['KUBERNETES_SERVICE_HOST'] else socket.AF_INET)\n"
    "s.settimeout(5)\n"
    "try:\n"
    " s.connect((os.environ['KUBERNETES_SERVICE_HOST'],int(os.environ['KUBERNETES_SERVICE_PORT'])))\n"
    " message='reached'\n"
    "except ConnectionRefusedError:\n"
    " message='reached'\n"
    "except OSError as error:\n"
    " message='blocked '+str(error)\n"
    "if not os.path.isdir(os.path.join(sys.prefix,'share/codehub/tools')):\n"
    " message+='\\nno tools'\n"
    "try:\n"
    f" open('{_VOLUME}/probe','w').close()\n"
    "except OSError as error:\n"
    " message+='\\nvolume '+str(error)\n"
    "open('/dev/termination-log','w').write(message)\n"
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    `fix` is empty if nothing is wrong. `is_fatal` means that workspaces cannot work like this.
    """

    part: str
    message: str
    fix: str = ""
    is_fatal: bool = True


async def check_cluster(
    client: ApiClient,
    image: str,
    claims: ClaimOptions,
    options: PodOptions | None = None,
    workspace_images: Sequence[str] = (),
) -> list[Check]:
    """Run all checks, but stop if the server does not answer. Of `workspace_images`, the first is the default profile's."""
    try:
        version = await client.version()
    except CodeHubError as error:
        fix = "check KUBECONFIG, the network and the credentials: `kubectl version` must work with the same file"
        return [Check("kubernetes", str(error), fix)]
    where = client.access.described_as or client.access.server
    found = [Check("kubernetes", f"{version[0]}.{version[1]}, by {where}, namespace {client.namespace}")]
    if version < _OLDEST:
        found.append(Check("kubernetes", "the server is older than 1.20", "upgrade the cluster"))
    missing = await _permissions(client)
    found += missing
    classes = await _storage_class(client, claims.storage_class)
    found += [*classes, access_mode(version, claims.access_mode)]
    if not missing and not any(one.fix for one in classes):
        options = options or PodOptions()
        tried = [_probe(client, image, claims, options), *(_pull(client, one, options) for one in workspace_images)]
        first, *others = await asyncio.gather(*tried)
        found += first
        for number, checks in enumerate(others):
            found += [replace(one, is_fatal=number == 0) for one in checks]
    return found


async def unmet_needs(client: ApiClient, claims: ClaimOptions, part: str = "coordinator") -> list[Check]:
    """Return what a part lacks in a cluster that answers, as far as this is visible without creating anything.

    Nothing is checked for other programs, such as `codehub doctor`, which has checks of its own.
    """
    found = await _permissions(client, PERMISSIONS_OF.get(part, ()))
    if part == "coordinator":  # it creates homes
        found += await _storage_class(client, claims.storage_class)
    return [one for one in found if one.fix]


async def _permissions(client: ApiClient, permissions: Permissions = PERMISSIONS) -> list[Check]:
    wanted = [(*what, verb) for *what, verbs in permissions for verb in verbs]
    try:
        allowed = await asyncio.gather(*(_is_allowed(client, *one) for one in wanted))
    except CodeHubError as error:
        return [Check("kubernetes permissions", f"could not be checked: {error}", "check the credentials")]
    lacking = [
        f"{verb} {resource}{'/' + subresource if subresource else ''}"
        for (_, resource, subresource, verb), is_allowed in zip(wanted, allowed, strict=True)
        if not is_allowed
    ]
    if not lacking:
        return []
    fix = "apply deploy/kubernetes/workspaces/role.yaml, and bind it to CodeHub's user"
    return [Check("kubernetes permissions", f"in {client.namespace} CodeHub may not: {', '.join(lacking)}", fix)]


async def _is_allowed(client: ApiClient, group: str, resource: str, subresource: str, verb: str) -> bool:
    review = access_review(client.namespace, group, resource, subresource, verb)
    answer = await client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))


def access_review(namespace: str, group: str, resource: str, subresource: str, verb: str) -> dict[str, Any]:
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


async def _storage_class(client: ApiClient, name: str) -> list[Check]:
    """Check the storage class's name, if CodeHub may read classes, which are cluster-wide. The test pod tries it anyway."""
    try:
        items, _ = await client.list_all("/apis/storage.k8s.io/v1/storageclasses")
    except CodeHubError:
        return []
    names = [str(item["metadata"]["name"]) for item in items]
    mark = "storageclass.kubernetes.io/is-default-class"
    default = [one for one in items if (one["metadata"].get("annotations") or {}).get(mark) == "true"]
    if name and name not in names:
        fix = f"set CODEHUB_K8S_STORAGE_CLASS to one of: {', '.join(names) or 'none exists'}"
        return [Check("storage class", f"there is no storage class {name!r}", fix)]
    if not name and not default:
        fix = f"set CODEHUB_K8S_STORAGE_CLASS to one of: {', '.join(names) or 'none exists'}"
        return [Check("storage class", "the cluster has no default storage class", fix)]
    return [Check("storage class", name or str(default[0]["metadata"]["name"]))]


def access_mode(version: tuple[int, int], mode: str) -> Check:
    """Say which access mode homes have. Whether a driver has ReadWriteOncePod shows only when a claim is provisioned."""
    if mode == _ONCE_POD and version < _HAS_ONCE_POD:
        fix = "set CODEHUB_K8S_ACCESS_MODE=ReadWriteOnce, or upgrade the cluster to 1.29"
        return Check("access mode", f"{mode} needs Kubernetes 1.29", fix, is_fatal=False)
    if mode == "ReadWriteOnce" and version >= _HAS_ONCE_POD:
        return Check(
            "access mode",
            f"{mode}. If the driver supports it, CODEHUB_K8S_ACCESS_MODE={_ONCE_POD} is safer; doctor then tries it",
        )
    return Check("access mode", mode)


async def _probe(client: ApiClient, image: str, claims: ClaimOptions, options: PodOptions) -> list[Check]:
    """Run a short-lived pod like a workspace's, with a home.

    It checks whether the image can be pulled, whether the storage class provides a volume, and what the network allows.
    """
    core = f"/api/v1/namespaces/{client.namespace}"
    body = probe_pod(image, options)
    name = str(body["metadata"]["name"])
    _mount(body["spec"], name)
    try:
        made = decode_pod(await client.create(f"{core}/pods", body))
    except NotFound:
        fix = "apply deploy/kubernetes/workspaces, or correct CODEHUB_K8S_NAMESPACE"
        return [Check("kubernetes", f"the namespace {client.namespace} does not exist", fix)]
    except CodeHubError as error:
        return [Check("test pod", str(error), "see what the message names: a quota, a policy or a webhook")]
    try:
        claim = decode_meta(await client.create(f"{core}/persistentvolumeclaims", probe_claim(name, made, claims)))
        return await _read_probe(client, f"{core}/pods/{name}", image, claim.uid)
    except CodeHubError as error:
        return [Check("test pod", str(error), "see what the message names: a quota, a policy or a webhook")]
    finally:
        with contextlib.suppress(CodeHubError):
            await asyncio.shield(client.delete(f"{core}/pods/{name}", made.meta.uid))


async def _pull(client: ApiClient, image: str, options: PodOptions) -> list[Check]:
    """Run a short-lived pod with a workspace's image, where workspaces run. What it does there does not matter."""
    path = f"/api/v1/namespaces/{client.namespace}/pods"
    body = probe_pod(image, options)
    body["spec"]["containers"][0]["command"] = ["true"]
    name = str(body["metadata"]["name"])
    says, refusals = "no answer", 0
    try:
        made = decode_pod(await client.create(path, body))
    except CodeHubError as error:
        return [Check("workspace image", f"{image}: {error}", _FIX_IMAGE)]
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            while refusals < _MOST_REFUSALS and (raw := await client.get(f"{path}/{name}")) is not None:
                match outlook(decode_pod(raw)):
                    case Failed(ImagePullFailed() as refused):
                        return [Check("workspace image", str(refused), _FIX_IMAGE)]
                    case Failed(cause) if "ImagePull" in str(cause):  # the registry may answer in a moment
                        says, refusals = str(cause), refusals + 1
                    case Starting(says):
                        pass
                    case _:
                        return [Check("workspace image", f"{image} can be pulled")]
                await asyncio.sleep(0.5)
    except (CodeHubError, TimeoutError) as error:
        says = str(error) or says
    finally:
        with contextlib.suppress(CodeHubError):
            await asyncio.shield(client.delete(f"{path}/{name}", made.meta.uid))
    return [Check("workspace image", f"{image} could not be tried: {says}", _FIX_IMAGE)]


def probe_claim(name: str, pod: Pod, claims: ClaimOptions) -> dict[str, Any]:
    """Return a claim like a home's. It belongs to the pod and goes with it, also if doctor is killed."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": labels("doctor", "doctor", ROLE_INSTANCE),
            "ownerReferences": [owner("v1", "Pod", name, pod.meta.uid)],
        },
        "spec": claim_spec(claims.size, claims.storage_class, claims.access_mode),
    }


def _mount(spec: dict[str, Any], claim: str) -> None:
    spec["securityContext"] |= {"runAsGroup": UID, "fsGroup": UID}
    spec["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": _VOLUME}]


def probe_pod(image: str, options: PodOptions) -> dict[str, Any]:
    """Return a pod that runs where workspaces do, and that a quota on requests and limits accepts."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        # Without an installation's label, so that no running CodeHub's watch sees it.
        "metadata": {
            "name": f"codehub-doctor-{secrets.token_hex(4)}",
            "labels": labels("doctor", "doctor", ROLE_INSTANCE),
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **placement(options),
            "containers": [
                {
                    "name": "probe",
                    "image": image,
                    "command": ["python3", "-c", _PROBE],
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"cpu": "1", "memory": "128Mi", "ephemeral-storage": "64Mi"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


async def _read_probe(client: ApiClient, path: str, image: str, claim_uid: str) -> list[Check]:
    says = "no answer"
    cluster = Cluster(client, "doctor")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            while True:
                raw = await client.get(path)
                if raw is None:
                    return [Check("test pod", "something else deleted it", "look for a policy that removes pods")]
                pod = decode_pod(raw)
                if pod.is_over:
                    return probed(pod, image)
                match outlook(pod):
                    case Failed(error):
                        return [
                            Check(
                                "test pod",
                                f"{image}: {error}",
                                "set CODEHUB_K8S_IMAGE to an image the nodes can pull",
                            )
                        ]
                    case Starting(says):
                        warning = await cluster.last_warning(claim_uid)
                        if warning.startswith("ProvisioningFailed"):
                            return [Check("storage class", warning, _FIX_CLASS)]
                    case Started():
                        says = "it runs, and does not end"
                await asyncio.sleep(0.5)
    return [Check("test pod", f"it did not run: {says}", "see `kubectl describe pod` in the namespace")]


def probed(pod: Pod, image: str) -> list[Check]:
    """Interpret what the test pod reported."""
    answer = pod.main.terminated.message if pod.main and pod.main.terminated else ""
    message, *problems = answer.split("\n")
    if "no tools" in problems:
        fix = "build it from CodeHub's Dockerfile: every workspace gets its helper, Python and SSH server from this image"
        return [Check("test pod", f"{image} has no tools for workspaces, so none can start", fix)]
    found = [Check("test pod", f"{image} can be pulled and run under the restricted standard")]
    unwritable = next((one.removeprefix("volume ") for one in problems if one.startswith("volume ")), "")
    if unwritable:
        fix = "use a storage class whose driver supports fsGroup: homes belong to uid 1000"
        found.append(Check("test volume", f"a new home cannot be written: {unwritable}", fix))
    else:
        found.append(Check("test volume", "the storage class provides a home that workspaces can write to"))
    if message.startswith("blocked"):
        return [*found, Check("network policy", "the network keeps workspaces from the API server")]
    if message == "reached":
        fix = (
            "use a network plug-in that enforces NetworkPolicies (Calico, Cilium, …), and apply network-policies.yaml"
        )
        text = "the network does not enforce NetworkPolicies: workspaces reach the API server and each other"
        return [*found, Check("network policy", text, fix, is_fatal=False)]
    return [
        Check(
            "test pod",
            f"it ended without an answer: {message or pod.reason or 'no reason given'}",
            "is it CodeHub's image?",
        )
    ]
