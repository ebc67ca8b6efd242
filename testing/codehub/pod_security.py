"""The *restricted* Pod Security Standard as a pure function, following the list of controls in Kubernetes' documentation.

The test node's release does not enforce it, so created and shipped objects are checked against this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_PROFILES = ("RuntimeDefault", "Localhost")
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def violations(spec: Json) -> list[str]:
    """Return the standard's violations in a Pod's spec, empty if it is allowed."""
    return [*_of_pod(spec), *(found for one in containers(spec) for found in _of_container(spec, one))]


def containers(spec: Json) -> list[Json]:
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [one for kind in kinds for one in spec.get(kind) or ()]


def _of_pod(spec: Json) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    security = spec.get("securityContext") or {}
    if security.get("sysctls"):
        yield "sysctls"  # some are allowed; CodeHub needs none
    yield from _of_context(security)
    for volume in spec.get("volumes") or ():
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f"volume {volume['name']}: {', '.join(sorted(kinds - _VOLUMES))}"


def _of_context(security: Json) -> Iterator[str]:
    """Return what neither a Pod's security context nor a container's may say."""
    if security.get("runAsUser") == 0:
        yield "runAsUser 0"
    if (security.get("windowsOptions") or {}).get("hostProcess"):
        yield "windowsOptions"
    linux = security.get("seLinuxOptions") or {}
    if linux.get("user") or linux.get("role") or linux.get("type", "") not in _SELINUX_TYPES:
        yield "seLinuxOptions"
    if (security.get("appArmorProfile") or {}).get("type", _PROFILES[0]) not in _PROFILES:
        yield "appArmorProfile"


def _of_container(spec: Json, container: Json) -> Iterator[str]:
    name, own, pod = container["name"], container.get("securityContext") or {}, spec.get("securityContext") or {}
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name}: capabilities are not dropped"
    if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities are added"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot"
    profile = own.get("seccompProfile") or pod.get("seccompProfile") or {}
    if profile.get("type") not in _PROFILES:
        yield f"{name}: seccompProfile"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    yield from (f"{name}: {found}" for found in _of_context(own))
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield f"{name}: hostPort"
    handlers = {**{probe: container.get(probe) for probe in _PROBES}, **(container.get("lifecycle") or {})}
    for kind, handler in handlers.items():
        if any((handler or {}).get(how, {}).get("host") for how in ("httpGet", "tcpSocket")):
            yield f"{name}: {kind} names a host"
