"""Response schemas of templates, and how domain values become them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from codehub.api.views import View
from codehub.domain.applied_template import AppliedTemplate
from codehub.domain.model import Workspace
from codehub.domain.parameters import Parameter
from codehub.domain.schedule import shown_schedule
from codehub.domain.templates import StoredVersion
from codehub.services.templates import Offered, Preview, Problem, Pushed, Update, VersionText


class WorkspaceTemplateView(View):
    """The template that a workspace runs with."""

    name: str
    version: int
    pending_version: int | None = Field(description="The version that it runs by from its next start on, if another.")
    latest_version: int | None
    update_available: bool


class TimeZoneView(View):
    time_zone: str


class ParameterView(View):
    name: str
    type: Literal["choice", "text", "number", "switch"]
    description: str
    required: bool
    default: str | int | float | bool | None
    choices: list[str]
    pattern: str
    min: float | None
    max: float | None


class TemplateView(View):
    name: str
    description: str
    version: int = Field(description="The newest version; 0 for a profile, which is offered as a template too.")
    access: Literal["users", "admins"]
    builtin: bool
    parameters: list[ParameterView]
    repo: str = Field(description="The repository that workspaces start from; may hold parameters. Empty: none.")
    archived_at: datetime | None
    workspaces: int | None = Field(description="How many workspaces use it; for administrators.")
    source: str | None = Field(description="The newest version's text; for administrators.")


class TemplateList(View):
    items: list[TemplateView]


class PushedView(View):
    name: str
    version: int
    new: bool = Field(description="False if it equals the newest version.")


class PushedList(View):
    items: list[PushedView]


class VersionBrief(View):
    version: int
    created_at: datetime
    created_by: str


class VersionList(View):
    items: list[VersionBrief]


class VersionView(VersionBrief):
    source: str
    diff: str = Field(description="Against the version before it, as `diff -u` writes it.")


class ProblemView(View):
    line: int | None = Field(description="In the text, from 1; null for a parameter's value or the text as a whole.")
    where: str = Field(description="The key, for example `templates.web.size.memory` or `parameters.version`.")
    message: str


class SizeView(View):
    cpus: float | None
    memory_bytes: int | None
    disk_bytes: int | None


class ResolvedView(View):
    """What a workspace is created from: a template with its parameters filled in."""

    profile: str
    image_ref: str
    size: SizeView
    env: Mapping[str, str]
    setup: list[str]
    ports: list[int]
    repo_url: str
    repo_ref: str
    repo_path: str
    ttl_standby_seconds: float | None
    ttl_archive_seconds: float | None
    schedule: str | None


class PreviewView(View):
    name: str
    problems: list[ProblemView]
    notes: list[str] = Field(description="What does not apply on this runtime.")
    parameters: list[ParameterView]
    resolved: ResolvedView | None = Field(description="Null while there are problems.")


class PreviewList(View):
    items: list[PreviewView]


class UpdateView(View):
    """A workspace's template, and what its newest version would change."""

    name: str
    version: int
    pending_version: int | None
    latest_version: int | None
    update_available: bool
    changes: list[str]
    problems: list[ProblemView] = Field(description="Values that the newest version needs or does not take.")
    blocked: str = Field(description="Why the update cannot be taken; empty if it can.")
    parameters: Mapping[str, str | int | float | bool]
    resolved: ResolvedView


def template_of(workspace: Workspace) -> WorkspaceTemplateView | None:
    template = workspace.template
    if template is None:
        return None
    runs_by = workspace.template_next or template
    latest = workspace.template_latest
    return WorkspaceTemplateView(
        name=template.name,
        version=template.version,
        pending_version=None if workspace.template_next is None else workspace.template_next.version,
        latest_version=latest,
        update_available=latest is not None and latest > runs_by.version,
    )


def template_view(offered: Offered, *, is_admin: bool) -> TemplateView:
    template, stored = offered.template, offered.stored
    return TemplateView(
        name=template.name,
        description=template.description,
        version=offered.version,
        access=template.access.value,
        builtin=stored is None,
        parameters=parameter_views(template.parameters),
        repo=template.repo_url,
        archived_at=stored.archived_at if stored is not None else None,
        workspaces=stored.workspaces if stored is not None and is_admin else None,
        source=stored.source if stored is not None and is_admin else None,
    )


def parameter_views(parameters: Mapping[str, Parameter]) -> list[ParameterView]:
    return [
        ParameterView(
            name=each.name,
            type=each.kind.value,
            description=each.description,
            required=each.default is None,
            default=each.default,
            choices=list(each.choices),
            pattern=each.pattern.source if each.pattern is not None else "",
            min=each.minimum,
            max=each.maximum,
        )
        for each in parameters.values()
    ]


def pushed_view(pushed: Pushed) -> PushedView:
    return PushedView(name=pushed.name, version=pushed.version, new=pushed.is_new)


def version_brief(stored: StoredVersion) -> VersionBrief:
    return VersionBrief(version=stored.version, created_at=stored.created_at, created_by=stored.created_by)


def version_view(text: VersionText) -> VersionView:
    stored = text.stored
    return VersionView(
        version=stored.version,
        created_at=stored.created_at,
        created_by=stored.created_by,
        source=stored.source,
        diff=text.diff,
    )


def preview_view(preview: Preview) -> PreviewView:
    return PreviewView(
        name=preview.name,
        problems=_problems(preview.problems),
        notes=list(preview.notes),
        parameters=parameter_views(preview.template.parameters) if preview.template is not None else [],
        resolved=_resolved(preview.applied) if preview.applied is not None else None,
    )


def update_view(update: Update) -> UpdateView:
    pending, current = update.pending, update.current
    return UpdateView(
        name=current.name,
        version=current.version,
        pending_version=None if pending is None else pending.version,
        latest_version=update.latest,
        update_available=update.latest is not None and update.latest > (pending or current).version,
        changes=list(update.changes),
        problems=_problems(update.problems),
        blocked=update.blocked,
        parameters=dict(current.parameters),
        resolved=_resolved(current),
    )


def _problems(problems: Sequence[Problem]) -> list[ProblemView]:
    return [ProblemView(line=each.line, where=each.where, message=each.message) for each in problems]


def _resolved(applied: AppliedTemplate) -> ResolvedView:
    size = applied.size
    standby, archive = applied.ttl_standby, applied.ttl_archive
    return ResolvedView(
        profile=applied.profile,
        image_ref=applied.image_ref,
        size=SizeView(cpus=size.cpus, memory_bytes=size.memory_bytes, disk_bytes=size.disk_bytes),
        env=dict(applied.env),
        setup=list(applied.setup),
        ports=list(applied.ports),
        repo_url=applied.repo_url,
        repo_ref=applied.repo_ref,
        repo_path=applied.repo_path,
        ttl_standby_seconds=standby.total_seconds() if standby is not None else None,
        ttl_archive_seconds=archive.total_seconds() if archive is not None else None,
        schedule=None
        if applied.schedule is None
        else f"{shown_schedule(applied.schedule)}, in the owner's time zone",
    )
