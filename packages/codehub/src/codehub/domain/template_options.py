"""A template's size and Kubernetes options: the values, and how to read them from TOML. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from codehub.domain.errors import Invalid
from codehub.domain.table_reader import TableReader
from codehub.domain.units import parse_bytes

# No IDE starts with less than the minimum; more than the maximum is a typing error.
_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 64 << 40
_LEAST_DISK, _MOST_DISK = 16 << 20, 1 << 50
_MOST_CPUS = 1024
_MOST_DEVICES = 64
# Kubernetes' rules for object names, label keys and label values.
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_OPERATORS = ("Equal", "Exists")
_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_LONGEST_AFFINITY = 16 << 10
# What CodeHub finds its own objects by, and what network policies select.
_OURS = re.compile(r"([a-z0-9.-]*\.)?codehub\.dev/.*|app\.kubernetes\.io/managed-by")
_LONGEST_ANNOTATIONS = 64 << 10  # of the 256 KiB that an object may have
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Size:
    """None: use the installation's setting."""

    cpus: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Options for pods that a template adds to the installation's own, or replaces."""

    runtime_class: str = ""
    priority_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    image_pull_secrets: tuple[str, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    tolerations: tuple[Toleration, ...] = ()
    affinity: str = ""  # Kubernetes' own object as JSON; replaces the installation's
    # Not in the repr, which is part of the digests of running instances.
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


AS_INSTALLED = Size()
NO_OPTIONS = KubernetesOptions()


def parse_size(reader: TableReader | None) -> Size:
    if reader is None:
        return AS_INSTALLED
    cpus = reader.take("cpus", (int, float), "a number of CPUs")
    if isinstance(cpus, int | float) and not 0.01 <= cpus <= _MOST_CPUS:
        reader.wrong("cpus", f"must be from 0.01 to {_MOST_CPUS}")
        cpus = None
    size = Size(
        float(cpus) if isinstance(cpus, int | float) else None,
        reader.parsed("memory", lambda text: _bytes(text, _LEAST_MEMORY, _MOST_MEMORY)),
        reader.parsed("disk", lambda text: _bytes(text, _LEAST_DISK, _MOST_DISK)),
    )
    reader.end("cpus, memory, disk")
    return size


def _bytes(text: str, least: int, most: int) -> int:
    amount = parse_bytes(text)
    if not least <= amount <= most:
        raise Invalid(f"must be from {least >> 20}M to {most >> 40}T")
    return amount


def parse_kubernetes(reader: TableReader | None) -> KubernetesOptions:
    if reader is None:
        return NO_OPTIONS
    selector = dict(reader.strings("node_selector"))
    for key, value in selector.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            reader.wrong(f"node_selector.{key}", "is not a label and a value of Kubernetes")
    secrets = tuple(str(item) for item in reader.items("image_pull_secrets", str, "names"))
    if not all(_OBJECT.fullmatch(name) for name in secrets):
        reader.wrong("image_pull_secrets", "are names of Secrets in the namespace of the workspaces")
    options = KubernetesOptions(
        runtime_class=reader.parsed("runtime_class", _object_name) or "",
        priority_class=reader.parsed("priority_class", _object_name) or "",
        node_selector=MappingProxyType(selector),
        image_pull_secrets=secrets,
        gpus=MappingProxyType(_gpus(reader.table("gpus"))),
        tolerations=_tolerations(reader),
        affinity=_affinity(reader),
        labels=_metadata(reader, "labels"),
        annotations=_metadata(reader, "annotations"),
    )
    reader.end(
        "runtime_class, priority_class, node_selector, tolerations, affinity, image_pull_secrets, gpus, labels, annotations"
    )
    return options


def _object_name(text: str) -> str:
    if not _OBJECT.fullmatch(text):
        raise Invalid(f"{text!r} is not the name of an object of Kubernetes")
    return text


def _metadata(reader: TableReader, kind: str) -> Mapping[str, str]:
    """Return labels or annotations for Pods."""
    found = dict(reader.strings(kind))
    for key, value in found.items():
        if not _KEY.fullmatch(key) or (kind == "labels" and not _VALUE.fullmatch(value)):
            reader.wrong(f"{kind}.{key}", f"is not one of the {kind} that Kubernetes accepts")
        elif _OURS.fullmatch(key):
            reader.wrong(f"{kind}.{key}", "is CodeHub's own")
    if sum(len(key.encode()) + len(value.encode()) for key, value in found.items()) > _LONGEST_ANNOTATIONS:
        reader.wrong(kind, f"are longer than {_LONGEST_ANNOTATIONS >> 10} KiB")
    return MappingProxyType(found)


def _gpus(reader: TableReader | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource in reader.remaining() if reader is not None else ():
        assert reader is not None
        count = reader.take(resource, int, "a number of devices")
        if not _KEY.fullmatch(resource) or "/" not in resource:
            reader.wrong(resource, "is not a device resource such as nvidia.com/gpu")
        elif isinstance(count, int) and 0 < count <= _MOST_DEVICES:
            found[resource] = count
        elif count is not None:
            reader.wrong(resource, f"must be from 1 to {_MOST_DEVICES}")
    return found


def _tolerations(reader: TableReader) -> tuple[Toleration, ...]:
    found = []
    for number, table in enumerate(reader.items("tolerations", dict, "tables")):
        assert isinstance(table, dict)
        one = TableReader(f"{reader.where}.tolerations[{number}]", table, reader.mistakes)
        toleration = Toleration(
            one.text("key"), one.text("operator") or "Equal", one.text("value"), one.text("effect")
        )
        one.end("key, operator, value, effect")
        if toleration.operator not in _OPERATORS:
            one.wrong("operator", f"must be one of {', '.join(_OPERATORS)}")
        elif toleration.operator == "Exists" and toleration.value:
            one.wrong("value", "Exists has none")
        elif toleration.operator == "Equal" and not toleration.key:
            one.wrong("key", "is missing; only Exists tolerates every taint")
        if toleration.key and not _KEY.fullmatch(toleration.key):
            one.wrong("key", "is not the key of a taint")
        if not _VALUE.fullmatch(toleration.value):
            one.wrong("value", "is not the value of a taint")
        if toleration.effect and toleration.effect not in _EFFECTS:
            one.wrong("effect", f"must be one of {', '.join(_EFFECTS)}")
        found.append(toleration)
    return tuple(found)


def _affinity(reader: TableReader) -> str:
    """Return the affinity as JSON. Its rules have many fields; the API server checks them."""
    table = reader.take("affinity", dict, "a table")
    if not isinstance(table, dict):
        return ""
    unknown = [key for key in table if key not in _AFFINITIES]
    if unknown or not table:
        reader.wrong("affinity", f"has {' or '.join(_AFFINITIES)}, as in a Pod")
        return ""
    try:
        text = json.dumps(table, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        reader.wrong("affinity", "has values that JSON does not know, such as a date")
        return ""
    if len(text) > _LONGEST_AFFINITY:
        reader.wrong("affinity", f"is longer than {_LONGEST_AFFINITY >> 10} KiB")
        return ""
    return text
