"""Describes which parts of a template do not apply on a runtime, and what an update changes in a workspace. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.parameters import Value
from codehub.domain.profiles import Runs
from codehub.domain.schedule import Schedule, shown_schedule
from codehub.domain.template_options import NO_OPTIONS, KubernetesOptions, Size
from codehub.domain.templates import Template
from codehub.domain.units import shown_bytes, shown_duration

# Display names of runtimes, by the instance backend in the row.
RUNTIMES: Mapping[str, str] = {"process": "process", "local-docker": "docker", "kubernetes": "kubernetes"}
RUNS: Mapping[str, Runs] = {"process": Runs.COMMAND, "docker": Runs.IMAGE, "kubernetes": Runs.IMAGE}

_COMPARED = (
    ("profile", "profile"),
    ("image", "image_ref"),
    ("size", "size"),
    ("repository", "repo_url"),
    ("branch or tag", "repo_ref"),
    ("folder", "repo_path"),
    ("environment", "env"),
    ("setup commands", "setup"),
    ("ports", "ports"),
    ("sleep after", "ttl_standby"),
    ("archive after", "ttl_archive"),
    ("schedule", "schedule"),
    ("Kubernetes options", "kubernetes"),
)


# An existing clone is never changed, and setup commands run once per home.
_NEW_HOMES_ONLY = ("repository:", "branch or tag:", "folder:", "setup commands:")


def values_by_template(templates: Mapping[str, Template], given: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Return the values for each template of one text. A value that no template asks for is a mistake in all of them."""
    asked = {name for template in templates.values() for name in template.parameters}
    return {
        name: {each: value for each, value in given.items() if each in template.parameters or each not in asked}
        for name, template in templates.items()
    }


def notes(template: Template, runtime: str) -> list[str]:
    """Return the parts of the template that have no effect on this runtime."""
    found = []
    if template.image and RUNS[runtime] is Runs.COMMAND:
        found.append("image: not used, because workspaces here are processes; everything else applies")
    if template.kubernetes != NO_OPTIONS and runtime != "kubernetes":
        found.append(f"kubernetes: not used, because workspaces here run on {runtime}")
    if template.size.disk_bytes is not None:
        found.append("size.disk: people are warned; enforced where homes have project quotas or volume claims")
    return found


def applied_changes(old: AppliedTemplate, new: AppliedTemplate) -> list[str]:
    """Return what changes from the next start on."""
    lines = []
    for label, attribute in _COMPARED:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after and not (attribute == "image_ref" and (before, after) == (old.profile, new.profile)):
            lines.append(f"{label}: {shown(before)} → {shown(after)}")
    return [f"{line} (new homes only)" if line.startswith(_NEW_HOMES_ONLY) else line for line in lines]


def shown(value: object) -> str:
    match value:
        case None | "" | ():
            return "none"
        case Size(cpus, memory, disk):
            parts = [
                f"{cpus:g} {'CPU' if cpus == 1 else 'CPUs'}" if cpus is not None else "",
                f"{shown_bytes(memory)} memory" if memory is not None else "",
                f"{shown_bytes(disk)} disk" if disk is not None else "",
            ]
            return ", ".join(part for part in parts if part) or "default"
        case Mapping():
            return ", ".join(sorted(_entry(name, item) for name, item in value.items())) or "none"
        case KubernetesOptions():
            set_ = {name: getattr(value, name) for name in KubernetesOptions.__dataclass_fields__}
            return ", ".join(f"{name}={shown(item)}" for name, item in set_.items() if item) or "none"
        case tuple():
            return ", ".join(map(str, value))
        case Schedule():
            return shown_schedule(value)
        case timedelta():
            return shown_duration(value)
        case _:
            return str(value)


def _entry(name: object, value: object) -> str:
    return f"{name}={value}" if isinstance(value, str | int) else str(name)
