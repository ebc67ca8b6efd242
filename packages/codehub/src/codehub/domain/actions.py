"""Defines which actions a workspace allows in its current state, and the reason when it does not. The only place for this
rule.

The service checks an action here before it changes a row, and the API sends `allowed_actions` with every workspace, so that
the dashboard and the command line offer only what the server accepts. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from codehub.domain.duplicate import NotNow, source_of
from codehub.domain.errors import Conflict
from codehub.domain.model import DesiredState, ErrorReason, Operation, Phase, Status, Workspace
from codehub.domain.status import status_of
from codehub.domain.transitions import cancels_to

# Starting, stopping and archiving cannot fix these errors: an administrator chooses the archive to continue from.
NEEDS_ADMIN = frozenset({ErrorReason.DATA_LOST, ErrorReason.ARCHIVE_CORRUPTED})


class Action(StrEnum):
    """Values of `allowed_actions`. The API verbs have the same names unless a comment says otherwise."""

    OPEN = "open"
    START = "start"
    STOP = "stop"
    ARCHIVE = "archive"
    RECOVER = "recover"
    CONTINUE_FROM_ARCHIVE = "continue_from_archive"  # in a new workspace, while the node does not answer
    EDIT = "edit"
    DELETE = "delete"
    UNDELETE = "undelete"
    KEEP_RUNNING = "keep_running"  # PATCH desired_state=RUNNING while it is stopping
    CANCEL = "cancel"
    DUPLICATE = "duplicate"
    FORCE_DELETE = "force_delete"  # DELETE ?force=true, from any state


@dataclass(frozen=True, slots=True)
class Viewer:
    """The properties of the current user that decide which actions are allowed."""

    is_admin: bool = False
    is_owner: bool = True


@dataclass(frozen=True, slots=True)
class _Rule:
    phrase: str  # completes "you cannot … now"
    statuses: frozenset[Status]
    refuses_lost_data: bool = False
    admin_only: bool = False
    owner_only: bool = False


_AT_REST = frozenset({Status.CREATED, Status.STOPPED, Status.ERROR})
_LIVE = frozenset(Status) - {Status.DELETING, Status.DELETED}

_RULES: Mapping[Action, _Rule] = MappingProxyType(
    {
        Action.OPEN: _Rule("open it", _LIVE - {Status.ERROR}, owner_only=True),
        Action.START: _Rule("start it", _AT_REST, refuses_lost_data=True),
        Action.STOP: _Rule("stop it", frozenset({Status.RUNNING, Status.ERROR})),
        Action.ARCHIVE: _Rule(
            "archive it", frozenset({Status.RUNNING, Status.STOPPED, Status.ERROR}), refuses_lost_data=True
        ),
        Action.RECOVER: _Rule("recover it", frozenset({Status.ERROR}), admin_only=True),
        Action.CONTINUE_FROM_ARCHIVE: _Rule("continue from its last archive", _LIVE, owner_only=True),
        Action.EDIT: _Rule("change it", _LIVE),
        Action.DELETE: _Rule("delete it (force=true deletes it from any state)", _AT_REST),
        Action.UNDELETE: _Rule("undelete it", frozenset({Status.DELETED}), admin_only=True),
        Action.KEEP_RUNNING: _Rule("keep it running", frozenset({Status.STOPPING})),
        Action.CANCEL: _Rule("cancel anything", _LIVE - {Status.ERROR}),
        Action.DUPLICATE: _Rule("duplicate it", frozenset({Status.CREATED, Status.STOPPED})),
        Action.FORCE_DELETE: _Rule("delete it", _LIVE | {Status.DELETING}),
    }
)
_TARGETS: Mapping[Action, DesiredState] = MappingProxyType(
    {Action.START: DesiredState.RUNNING, Action.ARCHIVE: DesiredState.ARCHIVED}
)


def check_allowed(action: Action, workspace: Workspace) -> None:
    """Raise Conflict unless the workspace's state allows the action. The service checks the user's permissions."""
    status = status_of(workspace)
    if status not in (rule := _RULES[action]).statuses:
        allowed = ", ".join(each for each in Status if each in rule.statuses)
        cancels = action is Action.STOP and cancel_target(workspace) is not None
        instead = "cancel what is under way instead" if cancels else f"only from {allowed}"
        raise Conflict(f"the workspace is {status}: you cannot {rule.phrase} now; {instead}")
    refused = _refusal(action, workspace)
    if refused is not None:
        raise Conflict(refused)


def allowed_actions(workspace: Workspace, viewer: Viewer) -> tuple[Action, ...]:
    """Return the actions available to this user, in the order of `Action`.

    Omits actions that are accepted but already desired.
    """
    status = status_of(workspace)
    return tuple(
        action
        for action, rule in _RULES.items()
        if status in rule.statuses
        and (viewer.is_admin or not rule.admin_only)
        and (viewer.is_owner or not rule.owner_only)
        and _refusal(action, workspace) is None
        and not _is_desired_already(action, workspace)
    )


def cancel_target(workspace: Workspace) -> DesiredState | None:
    """Return the desired state that cancelling restores, or None if no cancellable operation is running."""
    desired, instead = workspace.desired_state, cancels_to(workspace)
    if instead is not None:
        return instead if desired is not instead and desired is not DesiredState.DELETED else None
    is_starting = desired is DesiredState.RUNNING and workspace.phase is not Phase.RUNNING
    # Before a start begins, or while the home is being created, there is no work to abandon.
    if is_starting and workspace.operation in (Operation.NONE, Operation.PROVISIONING):
        return DesiredState.ARCHIVED if workspace.phase is Phase.ARCHIVED else DesiredState.STANDBY
    return None


def may_have_instance(workspace: Workspace) -> bool:
    """Return whether an instance may exist, which has the secrets of the owner for whom it was started."""
    if workspace.phase is Phase.ERROR:
        return not workspace.conditions.container_ready.is_false
    # A start that was cancelled while its backend did not answer leaves STANDBY without an operation.
    is_unknown = workspace.phase is Phase.STANDBY and workspace.conditions.container_ready.is_unknown
    return (
        workspace.phase is Phase.RUNNING
        or workspace.operation in (Operation.STARTING, Operation.STOPPING)
        or is_unknown
    )


def stop_target(workspace: Workspace) -> DesiredState:
    """Return the desired state for a stop. In ERROR without a volume, there is nothing to keep in standby."""
    if workspace.phase is Phase.ERROR and workspace.home_ctx is None:
        return DesiredState.ARCHIVED
    return DesiredState.STANDBY


def _refusal(action: Action, workspace: Workspace) -> str | None:
    """Return why a workspace in one of the rule's statuses does not allow the action all the same."""
    rule = _RULES[action]
    # The proxy forwards to a running workspace and wakes a sleeping one; starting an archived one restores it.
    opens = workspace.phase in (Phase.RUNNING, Phase.STANDBY) or workspace.desired_state is DesiredState.RUNNING
    if action is Action.OPEN and not opens:
        return "the workspace is not running: start it first"
    if action is Action.CANCEL and cancel_target(workspace) is None:
        return "nothing is under way that can be cancelled"
    is_archived = workspace.phase is Phase.ARCHIVED and workspace.desired_state is DesiredState.ARCHIVED
    if action is Action.ARCHIVE and is_archived:
        return "the workspace is archived already"
    if action is Action.DUPLICATE and isinstance(source := source_of(workspace), NotNow):
        return source.why
    if action is Action.CONTINUE_FROM_ARCHIVE and not _is_out_of_reach(workspace):
        return "the workspace can be reached: it continues automatically"
    if action is Action.CONTINUE_FROM_ARCHIVE and workspace.archive_key is None:
        return "the workspace was never archived: there is nothing to continue from"
    if action is Action.UNDELETE and workspace.purged_at is not None:
        return "the workspace is past its retention and its archives are going: it cannot be undeleted"
    if rule.refuses_lost_data and workspace.phase is Phase.ERROR and workspace.error_reason in NEEDS_ADMIN:
        return (
            f"the workspace has {workspace.error_reason}: an administrator has to recover it from one of its archives"
        )
    return None


def _is_out_of_reach(workspace: Workspace) -> bool:
    """Return whether the workspace has a known home but an unknown run state, because its node does not answer.

    If the whole cluster is unreachable, it could not start another workspace either.
    """
    is_blocked = workspace.blocked is not None and workspace.blocked.reason is ErrorReason.UNREACHABLE
    seen = workspace.conditions
    return is_blocked and seen.volume_ready.is_true and seen.container_ready.is_unknown


def _is_desired_already(action: Action, workspace: Workspace) -> bool:
    if action is Action.FORCE_DELETE:
        return workspace.desired_state is DesiredState.DELETED
    target = stop_target(workspace) if action is Action.STOP else _TARGETS.get(action)
    if workspace.desired_state is not target:
        return False
    # Repeating the request also clears an error, except one that needs an administrator.
    return workspace.error_reason is None or workspace.error_reason in NEEDS_ADMIN
