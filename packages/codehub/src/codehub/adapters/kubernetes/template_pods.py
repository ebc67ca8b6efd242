"""Applies a template's size and Kubernetes options to the installation's. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

from codehub.adapters.kubernetes.manifests import Json, PodOptions
from codehub.adapters.kubernetes.quantity import quantity
from codehub.domain.template_options import AS_INSTALLED, KubernetesOptions, Size, Toleration


def with_template(options: PodOptions, size: Size, chosen: KubernetesOptions) -> PodOptions:
    """Return options in which the template's values replace the installation's, or extend lists."""
    return replace(
        _sized(options, size),
        runtime_class=chosen.runtime_class or options.runtime_class,
        priority_class=chosen.priority_class or options.priority_class,
        node_selector={**options.node_selector, **chosen.node_selector},
        image_pull_secrets=tuple(dict.fromkeys((*options.image_pull_secrets, *chosen.image_pull_secrets))),
        tolerations=(*options.tolerations, *(_toleration(one) for one in chosen.tolerations)),
        affinity=json.loads(chosen.affinity) if chosen.affinity else options.affinity,
        labels=chosen.labels,
        annotations=chosen.annotations,
        extra_resources={**options.extra_resources, **{name: str(count) for name, count in chosen.gpus.items()}},
    )


def for_transfers(options: PodOptions, chosen: KubernetesOptions) -> PodOptions:
    """Return options for the pods that archive or restore a template's homes: they run where its workspaces may run.

    Rules about other pods are left out: they are meant for workspaces, and would keep a transfer from the one node that
    can reach a local volume.
    """
    applied = with_template(options, AS_INSTALLED, chosen)
    node_affinity = (applied.affinity or {}).get("nodeAffinity")
    return replace(applied, affinity={"nodeAffinity": node_affinity} if node_affinity else None)


def _sized(options: PodOptions, size: Size) -> PodOptions:
    """Apply the size. Requests are capped at the limit, because the API server refuses a request above its limit."""
    if size.cpus is not None:
        request = min(quantity(options.cpu_request), size.cpus)
        options = replace(options, cpu_limit=f"{size.cpus:g}", cpu_request=f"{max(1, int(request * 1000))}m")
    if size.memory_bytes is not None:
        request = min(quantity(options.memory_request), size.memory_bytes)
        options = replace(options, memory_limit=str(size.memory_bytes), memory_request=str(int(request)))
    return options


def _toleration(one: Toleration) -> Json:
    fields = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in fields.items() if value}
