"""A workspace as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import quote

from pydantic import ConfigDict, Field

from codehub.api.config import ApiConfig
from codehub.api.template_views import WorkspaceTemplateView, template_of
from codehub.api.views import View
from codehub.domain.actions import Action, Viewer, allowed_actions
from codehub.domain.busy import shown_busy
from codehub.domain.continuing import archived_at
from codehub.domain.disk import disk_limit, disk_used
from codehub.domain.follow_schedule import Scheduled, next_scheduled
from codehub.domain.model import (
    CONDITION_NAMES,
    DesiredState,
    Operation,
    Phase,
    Status,
    Workspace,
    WorkspaceWithOwner,
)
from codehub.domain.routing import workspace_path
from codehub.domain.setup import (
    SetupState,
    StepState,
    expected_ports,
    may_change_repository,
    retry_label,
    setup_sentence,
)
from codehub.domain.status import status_of
from codehub.domain.ttl import Span, archives_at, sleeps_at
from codehub.domain.wording import disk_warning, error_text, fixing_command, scheduled_text, summarize


class ConditionView(View):
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: datetime | None


class ConditionsView(View):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    volume_ready: ConditionView = Field(serialization_alias="storage.volume_ready")
    archive_ready: ConditionView = Field(serialization_alias="storage.archive_ready")
    container_ready: ConditionView = Field(serialization_alias="infra.container_ready")
    healthy: ConditionView = Field(serialization_alias="policy.healthy")


class ProgressView(View):
    step: str
    done: int
    total: int | None
    unit: str
    percent: float | None = Field(description="Percentage of `total`, if that is known.")


class SummaryView(View):
    """The state as text for users; scripts should read `status`."""

    label: str = Field(description="One or two words: Running, Asleep, Restoring.")
    text: str = Field(description="What is being done and how far it is, or what went wrong; may be empty.")


class WorkspaceErrorView(View):
    reason: str | None
    message: str
    detail: str | None = Field(description="What exactly happened, as the failed step reported it.")
    remedy: str = Field(description="What you can do about it.")
    command: str | None = Field(description="The command that does that; null if there is none for you.")


class BlockedView(View):
    reason: str
    message: str
    since: datetime


class RepositoryView(View):
    url: str
    ref: str
    path: str


class SetupStepView(View):
    id: str
    title: str
    state: Literal["pending", "running", "done", "failed", "skipped"]
    once: bool = Field(description="Once per home; otherwise at each start.")
    message: str = Field(description="Why it failed and what to do; empty otherwise.")
    kind: str = Field(
        description="Of a failed clone: auth, missing, host, timeout, tls, ref, space, exists or other. "
        "Of one that lacks submodules or large files: incomplete. "
        "Of a step that was stopped: stopped, or timeout."
    )
    percent: int | None
    notes: list[str]
    exit_code: int | None
    started_at: datetime | None
    stops_at: datetime | None = Field(
        description="When it is stopped if it still runs; null if it has no time limit."
    )
    may_skip: bool = Field(description="Whether `:skip-setup` stops it, so that the next step follows.")


class IgnoredView(View):
    key: str
    reason: str


class SetupView(View):
    """The setup of the workspace besides its IDE: the clone, dotfiles, commands."""

    state: Literal["running", "failed", "done"]
    text: str = Field(description="One sentence for people; may be empty.")
    percent: int | None
    folder: str = Field(description="What the IDE opens, relative to the home; empty until it is there.")
    steps: list[SetupStepView]
    ports: list[int] = Field(description="Ports that the repository's devcontainer.json names.")
    port_labels: dict[int, str] = Field(description="The labels that devcontainer.json gives to ports.")
    ignored: list[IgnoredView] = Field(description="What of devcontainer.json has no effect here, and why.")
    error: str = Field(
        description="Why devcontainer.json was not understood or a secret is missing; empty otherwise."
    )
    retry: str = Field(
        description="The text of the button that repeats what failed or applies an image; may be empty."
    )
    may_change_repo: bool = Field(
        description="Whether `:retry-setup` takes another repository: the clone has failed."
    )


class ScheduledView(View):
    """What the schedule of the workspace's template does next."""

    what: Literal["start", "stop"]
    at: datetime
    time_zone: str = Field(description="Of its owner.")
    text: str = Field(description="For people: Starts Monday 23 Nov 08:53 Europe/Berlin.")


class WorkspaceView(View):
    id: str
    name: str
    description: str
    memo: str
    owner: str = Field(description="The owner's user name.")
    image_ref: str
    template: WorkspaceTemplateView | None = Field(
        description="Null for one that was made from a profile or an image."
    )
    status: Status
    phase: Phase
    operation: Operation
    desired_state: DesiredState
    conditions: ConditionsView
    progress: ProgressView | None
    error_reason: str | None = Field(description="The reason of ERROR, or of what it waits for (see `blocked`).")
    error_message: str | None = Field(description="What happened, for a person to read.")
    error_count: int
    blocked: BlockedView | None = Field(
        description="What it waits for: space on a disk, or a backend that does not answer. It continues automatically."
    )
    disk_bytes: int | None = Field(
        description="How much its home uses on disk, as last measured; null when that is unknown or it has no home."
    )
    disk_limit_bytes: int | None = Field(description="The disk size of its template; null if it has none.")
    disk_warning: str | None = Field(description="A sentence for people when it uses 90 % of that or more.")
    archive_key: str | None
    archive_bytes: int | None = Field(description="The size of that archive; null when it is unknown.")
    last_archive_at: datetime | None = Field(description="When its last archive was made.")
    path: str
    url: str
    created_at: datetime
    updated_at: datetime
    last_access_at: datetime | None
    phase_changed_at: datetime
    deleted_at: datetime | None
    sleeps_at: datetime | None = Field(
        description="When it is put to sleep if it stays idle; null if it is not running."
    )
    keep_awake_until: datetime | None = Field(description="The owner requested that it stays awake until then.")
    kept_awake_by: str | None = Field(description="The program that keeps it awake while nobody is there.")
    busy_since: datetime | None = Field(description="Since when that program was found at work.")
    archives_at: datetime | None = Field(
        description="When it is archived if it sleeps until then; null when it does not sleep."
    )
    scheduled: ScheduledView | None = Field(description="Null if its template has no schedule, or nothing is due.")
    allowed_actions: list[Action] = Field(description="What you can do with it in its present state.")
    repo: RepositoryView | None
    setup: SetupView | None = Field(description="null before its first start.")
    expected_ports: list[int] = Field(
        description="Ports that its template and devcontainer.json name, whether anything listens on them or not."
    )
    summary: SummaryView
    error: WorkspaceErrorView | None = Field(description="What went wrong and what to do; null unless in ERROR.")


class WorkspacePage(View):
    items: list[WorkspaceView]
    page: int
    per_page: int
    total: int


def workspace_view(
    owned: WorkspaceWithOwner, config: ApiConfig, viewer: Viewer, gaps: Sequence[Span], now: datetime
) -> WorkspaceView:
    """Return the workspace as this user sees it. `gaps` is when activity could not be observed."""
    workspace, summary = owned.workspace, summarize(owned.workspace)
    status = status_of(workspace)
    busy = shown_busy(workspace)
    blocked = workspace.blocked
    # Once deletion is requested, the phase shown is DELETING; the row keeps the level for the plans.
    shown = {Status.DELETING: Phase.DELETING, Status.DELETED: Phase.DELETED}
    phase = shown.get(status, workspace.phase)
    return WorkspaceView(
        id=workspace.id,
        name=workspace.name,
        description=workspace.description,
        memo=workspace.memo,
        owner=owned.owner,
        image_ref=workspace.image_ref,
        template=template_of(workspace),
        status=status,
        phase=phase,
        operation=workspace.operation,
        desired_state=workspace.desired_state,
        conditions=_conditions(workspace),
        progress=_progress(workspace),
        error_reason=workspace.error_reason or (blocked.reason if blocked is not None else None),
        error_message=workspace.error_message or (blocked.message if blocked is not None else None),
        blocked=None
        if blocked is None
        else BlockedView(reason=blocked.reason, message=blocked.message, since=blocked.since),
        error_count=workspace.error_count,
        disk_bytes=disk_used(workspace),
        disk_limit_bytes=disk_limit(workspace),
        disk_warning=disk_warning(disk_used(workspace), disk_limit(workspace)) or None,
        archive_bytes=owned.archive_bytes,
        archive_key=workspace.archive_key,
        last_archive_at=archived_at(workspace),
        path=workspace_path(workspace.id),
        url=address_of(workspace, config),
        created_at=workspace.created_at,
        updated_at=workspace.updated_at,
        last_access_at=workspace.last_access_at,
        phase_changed_at=workspace.phase_changed_at,
        deleted_at=workspace.deleted_at,
        sleeps_at=sleeps_at(workspace, timedelta(seconds=config.ttl_standby_s), gaps),
        archives_at=archives_at(workspace, timedelta(seconds=config.ttl_archive_s)),
        scheduled=_scheduled(next_scheduled(workspace, owned.schedule_zone, now)),
        allowed_actions=list(allowed_actions(workspace, viewer)),
        repo=None
        if workspace.repo is None
        else RepositoryView(url=workspace.repo.repository.url, ref=workspace.repo.ref, path=workspace.repo.path),
        setup=None if workspace.setup is None else setup_view(workspace.setup),
        expected_ports=list(expected_ports(workspace.template.ports if workspace.template else (), workspace.setup)),
        summary=SummaryView(label=summary.label, text=summary.text),
        error=_error(workspace, viewer) if status is Status.ERROR else None,
        keep_awake_until=workspace.keep_awake_until,
        kept_awake_by=busy.reason if busy is not None else None,
        busy_since=busy.since if busy is not None else None,
    )


def setup_view(state: SetupState) -> SetupView:
    running = [step for step in state.steps if step.state is StepState.RUNNING]
    return SetupView(
        state="running" if running or state.running else "failed" if state.failed or state.error else "done",
        text=setup_sentence(state),
        percent=running[0].percent if running else None,
        folder=state.folder,
        steps=[
            SetupStepView(
                id=step.id,
                title=step.title,
                state=step.state.value,
                once=step.once,
                message=step.message,
                kind=step.kind,
                percent=step.percent,
                notes=list(step.notes),
                exit_code=step.exit_code,
                started_at=_at(step.started_at),
                stops_at=_at(step.stops_at),
                may_skip=step.may_skip,
            )
            for step in state.steps
        ],
        ports=list(state.ports),
        port_labels=dict(state.port_labels),
        ignored=[IgnoredView(key=key, reason=reason) for key, reason in state.ignored],
        error=state.error,
        retry=retry_label(state),
        may_change_repo=may_change_repository(state),
    )


def _scheduled(found: Scheduled | None) -> ScheduledView | None:
    if found is None:
        return None
    return ScheduledView(
        what=found.moment.value, at=found.at.astimezone(UTC), time_zone=found.zone, text=scheduled_text(found)
    )


def _at(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def address_of(workspace: Workspace, config: ApiConfig) -> str:
    """Return the address of the IDE, which opens the clone once that exists."""
    url, state = config.url_of(workspace.id), workspace.setup
    if state is None or not state.folder or not state.home:
        return url
    profile = config.folder_addresses.get(
        workspace.image_ref, config.folder_addresses.get(config.default_profile, "")
    )
    folder = "/".join(quote(part, safe="") for part in state.folder.split("/"))
    return url + profile.replace("{home}", quote(state.home)).replace("{folder}", folder)


def _conditions(workspace: Workspace) -> ConditionsView:
    shown = {}
    for field in CONDITION_NAMES:
        condition = getattr(workspace.conditions, field)
        shown[field] = ConditionView(
            status=condition.status.value,
            reason=condition.reason,
            message=condition.message,
            last_transition_time=condition.last_transition_time,
        )
    return ConditionsView(**shown)


def _progress(workspace: Workspace) -> ProgressView | None:
    progress = workspace.progress
    if progress is None or workspace.operation is Operation.NONE:
        return None
    percent = round(min(100.0, 100 * progress.done / progress.total), 1) if progress.total else None
    return ProgressView(
        step=progress.step, done=progress.done, total=progress.total, unit=progress.unit, percent=percent
    )


def _error(workspace: Workspace, viewer: Viewer) -> WorkspaceErrorView:
    message, remedy = error_text(workspace.error_reason, is_admin=viewer.is_admin)
    return WorkspaceErrorView(
        reason=workspace.error_reason,
        message=message,
        detail=workspace.error_message,
        remedy=remedy,
        command=fixing_command(workspace, is_admin=viewer.is_admin),
    )
