"""The template version a workspace runs with, parameters filled in, stored in the workspace's row.

The complete template is stored, so that a start needs only the row: changing or removing a template does not affect a
workspace until its owner takes the update. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import time, timedelta
from types import MappingProxyType
from typing import Any

from codehub.domain.parameters import Value
from codehub.domain.profiles import Catalog, Runs
from codehub.domain.repository import RepositorySource, parse_source
from codehub.domain.schedule import Schedule
from codehub.domain.template_options import AS_INSTALLED, NO_OPTIONS, KubernetesOptions, Size, Toleration
from codehub.domain.templates import Template, parameter_env, render

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AppliedTemplate:
    """`image_ref` is passed to `Catalog.resolve`; `profile` defines how to run an image that the template specifies.

    `env` holds the template's variables and a `CODEHUB_PARAM_…` variable for every parameter. `version` 0 means a profile
    that is offered as a template.
    """

    name: str
    version: int
    image_ref: str
    profile: str
    parameters: Mapping[str, Value] = field(default_factory=lambda: _EMPTY)
    size: Size = AS_INSTALLED
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    setup: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    repo_url: str = ""
    repo_ref: str = ""
    repo_path: str = ""
    ttl_standby: timedelta | None = None
    ttl_archive: timedelta | None = None
    schedule: Schedule | None = None
    kubernetes: KubernetesOptions = NO_OPTIONS

    @property
    def repo(self) -> RepositorySource | None:
        return parse_source(self.repo_url, self.repo_ref, self.repo_path) if self.repo_url else None


def apply_template(
    template: Template, version: int, given: Mapping[str, Value], catalog: Catalog, runs: Runs
) -> AppliedTemplate:
    """Apply the template. Raises Mistakes if a value is wrong, and Invalid if the profile or image cannot run here."""
    rendered = render(template, given)
    profile = rendered.profile or catalog.default
    # The process runtime has no images; the rest of the template applies.
    image_ref = rendered.image if rendered.image and runs is Runs.IMAGE else profile
    applied = AppliedTemplate(
        name=template.name,
        version=version,
        image_ref=image_ref,
        profile=profile,
        parameters=MappingProxyType(dict(given)),
        size=rendered.size,
        env=MappingProxyType({**rendered.env, **parameter_env(template, given)}),
        setup=rendered.setup,
        ports=rendered.ports,
        repo_url=rendered.repo_url,
        repo_ref=rendered.repo_ref,
        repo_path=rendered.repo_path,
        ttl_standby=rendered.ttl_standby,
        ttl_archive=rendered.ttl_archive,
        schedule=rendered.schedule,
        kubernetes=rendered.kubernetes,
    )
    catalog.resolve(image_ref, runs, run_as=profile)
    if applied.repo_url:
        assert applied.repo is not None  # raises Invalid if a parameter value makes it invalid
    return applied


def carried_over(template: Template, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of an older version that this version still accepts. New parameters use their defaults."""
    return {name: value for name, value in values.items() if name in template.parameters}


def encode(applied: AppliedTemplate) -> dict[str, object]:
    """Encode for a JSON column. Omits defaults, so that rows stay small and old versions can read new rows."""
    found: dict[str, object] = {}
    for each in fields(AppliedTemplate):
        value = getattr(applied, each.name)
        if value and value not in (AS_INSTALLED, NO_OPTIONS):
            found[each.name] = _encoded(value)
    return {**found, "version": applied.version}


def _encoded(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case Schedule():
            return {
                "at": value.at.isoformat("minutes"),
                "days": sorted(value.days),
                "jitter": value.jitter.total_seconds(),
                "stop": value.stop.isoformat("minutes") if value.stop is not None else None,
            }
        case Size() | KubernetesOptions() | Toleration():
            return {each.name: _encoded(getattr(value, each.name)) for each in fields(value)}
        case Mapping():
            return dict(value)
        case tuple():
            return [_encoded(item) for item in value]
        case _:
            return value


def decode(column: Mapping[str, Any] | None) -> AppliedTemplate | None:
    if column is None:
        return None
    return AppliedTemplate(
        name=column["name"],
        version=column["version"],
        image_ref=column["image_ref"],
        profile=column["profile"],
        parameters=MappingProxyType(column.get("parameters", {})),
        size=Size(**column.get("size", {})),
        env=MappingProxyType(column.get("env", {})),
        setup=tuple(column.get("setup", ())),
        ports=tuple(column.get("ports", ())),
        repo_url=column.get("repo_url", ""),
        repo_ref=column.get("repo_ref", ""),
        repo_path=column.get("repo_path", ""),
        ttl_standby=_seconds(column.get("ttl_standby")),
        ttl_archive=_seconds(column.get("ttl_archive")),
        schedule=_schedule(column.get("schedule")),
        kubernetes=_kubernetes(column.get("kubernetes", {})),
    )


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _schedule(value: Mapping[str, Any] | None) -> Schedule | None:
    if value is None:
        return None
    stop = value.get("stop")
    return Schedule(
        time.fromisoformat(value["at"]),
        frozenset(value["days"]),
        timedelta(seconds=value["jitter"]),
        time.fromisoformat(stop) if stop is not None else None,
    )


def _kubernetes(value: Mapping[str, Any]) -> KubernetesOptions:
    return KubernetesOptions(
        runtime_class=value.get("runtime_class", ""),
        priority_class=value.get("priority_class", ""),
        node_selector=MappingProxyType(value.get("node_selector", {})),
        image_pull_secrets=tuple(value.get("image_pull_secrets", ())),
        gpus=MappingProxyType(value.get("gpus", {})),
        tolerations=tuple(Toleration(**one) for one in value.get("tolerations", ())),
        affinity=value.get("affinity", ""),
        labels=MappingProxyType(value.get("labels", {})),
        annotations=MappingProxyType(value.get("annotations", {})),
    )
