"""Converts rows of `workspaces` to domain values, and the JSON columns in both directions.

During an upgrade, a newer version may write values that this version does not know. Such a row can still be shown
(`of_newer_version`), but only the newer version acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from codehub.domain import applied_template
from codehub.domain.dev_image import decode_dev_image
from codehub.domain.errors import Invalid
from codehub.domain.model import (
    CONDITION_NAMES,
    NOT_OBSERVED,
    Blocked,
    Busy,
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Progress,
    Workspace,
)
from codehub.domain.repository import RepositorySource, parse_source
from codehub.domain.setup import parse_setup

E = TypeVar("E", bound=StrEnum)

_ENUMS: tuple[tuple[str, type[StrEnum]], ...] = (
    ("phase", Phase),
    ("operation", Operation),
    ("desired_state", DesiredState),
    ("error_reason", ErrorReason),
)


def workspace_of(row: Mapping[str, Any]) -> Workspace:
    """Convert a complete row (`SELECT workspaces.*`)."""
    return Workspace(
        id=row["id"],
        owner_user_id=row["owner_user_id"],
        name=row["name"],
        description=row["description"],
        memo=row["memo"],
        image_ref=row["image_ref"],
        instance_backend=row["instance_backend"],
        storage_backend=row["storage_backend"],
        home_store_key=row["home_store_key"],
        home_ctx=home_ctx_of(row["home_ctx"]),
        conditions=conditions_of(row["conditions"]),
        phase=known(Phase, row["phase"], Phase.PENDING),
        phase_changed_at=row["phase_changed_at"],
        operation=known(Operation, row["operation"], Operation.NONE),
        op_started_at=row["op_started_at"],
        progress=progress_of(row["progress"]),
        archive_op_id=row["archive_op_id"],
        archive_key=row["archive_key"],
        desired_state=known(DesiredState, row["desired_state"], DesiredState.STANDBY),
        observed_at=row["observed_at"],
        last_access_at=row["last_access_at"],
        error_reason=known(ErrorReason, row["error_reason"], ErrorReason.ACTION_FAILED)
        if row["error_reason"]
        else None,
        error_message=row["error_message"],
        error_count=row["error_count"],
        blocked=blocked_of(row["blocked"]),
        retry_at=row["retry_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deleted_at=row["deleted_at"],
        purged_at=row["purged_at"],
        cancel_op_started_at=row["cancel_op_started_at"],
        keep_awake_until=row["keep_awake_until"],
        template=applied_template.decode(row["template"]),
        template_next=applied_template.decode(row["template_next"]),
        template_latest=row["template_latest"],
        copy_of=row["copy_of"],
        busy=Busy(row["busy_reason"], row["busy_since"], row["busy_at"]) if row["busy_reason"] else None,
        repo=repo_of(row["repo"]),
        setup=None if row["setup"] is None else parse_setup(row["setup"]),
        setup_retry=row["setup_retry"],
        dev_image=decode_dev_image(row["dev_image"]),
        dev_image_next=decode_dev_image(row["dev_image_next"]),
        dev_image_auto=row["dev_image_auto"],
        disk_bytes=row["disk_bytes"],
        disk_checked_at=row["disk_checked_at"],
        of_newer_version=any(not _knows(kind, row[column]) for column, kind in _ENUMS if row[column]),
    )


def repo_of(column: Mapping[str, Any] | None) -> RepositorySource | None:
    if column is None:
        return None
    try:
        return parse_source(column["url"], column.get("ref", ""), column.get("path", ""))
    except Invalid:
        return None  # an older CodeHub accepted it, although git could not: one such row must not break every list


def repo_column(repo: RepositorySource | None) -> dict[str, object] | None:
    return None if repo is None else {"url": repo.repository.url, "ref": repo.ref, "path": repo.path}


def known(kind: type[E], value: str, otherwise: E) -> E:
    """Return the member of this enum, or `otherwise` for a value that a newer version wrote."""
    return kind(value) if _knows(kind, value) else otherwise


def _knows(kind: type[StrEnum], value: str) -> bool:
    return value in kind._value2member_map_


def conditions_of(column: Mapping[str, Any]) -> Conditions:
    return Conditions(**{field: _condition_of(column.get(name)) for field, name in CONDITION_NAMES.items()})


def conditions_column(conditions: Conditions) -> dict[str, object]:
    return {name: _condition_column(getattr(conditions, field)) for field, name in CONDITION_NAMES.items()}


def home_ctx_of(column: Mapping[str, Any] | None) -> HomeCtx | None:
    return None if column is None else HomeCtx(column["incarnation"], column.get("restore_marker"))


def home_ctx_column(ctx: HomeCtx | None) -> dict[str, object] | None:
    return None if ctx is None else {"incarnation": ctx.incarnation, "restore_marker": ctx.restore_marker}


def progress_of(column: Mapping[str, Any] | None) -> Progress | None:
    if column is None:
        return None
    return Progress(column["step"], column["done"], column.get("total"), column.get("unit", "bytes"))


def progress_column(progress: Progress | None) -> dict[str, object] | None:
    if progress is None:
        return None
    return {"step": progress.step, "done": progress.done, "total": progress.total, "unit": progress.unit}


def blocked_of(column: Mapping[str, Any] | None) -> Blocked | None:
    if column is None:
        return None
    reason = known(ErrorReason, column["reason"], ErrorReason.UNREACHABLE)
    return Blocked(reason, column["message"], datetime.fromisoformat(column["since"]))


def blocked_column(blocked: Blocked) -> dict[str, object]:
    return {"reason": blocked.reason.value, "message": blocked.message, "since": blocked.since.isoformat()}


def _condition_of(value: Mapping[str, Any] | None) -> Condition:
    if value is None:
        return NOT_OBSERVED
    when = value.get("last_transition_time")
    return Condition(
        known(ConditionStatus, value["status"], ConditionStatus.UNKNOWN),
        value["reason"],
        value.get("message", ""),
        datetime.fromisoformat(when) if when else None,
    )


def _condition_column(condition: Condition) -> dict[str, object]:
    when = condition.last_transition_time
    return {
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message,
        "last_transition_time": when.isoformat() if when else None,
    }
