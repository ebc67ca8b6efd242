"""Which actions a workspace allows, state by state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from codehub.domain.actions import (
    NEEDS_ADMIN,
    Action,
    Viewer,
    allowed_actions,
    cancel_target,
    check_allowed,
    may_have_instance,
    stop_target,
)
from codehub.domain.errors import Conflict
from codehub.domain.gc import archive_key_of
from codehub.domain.model import (
    Blocked,
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace, workspaces

_KEY = archive_key_of(WORKSPACE_ID, "op-1")
_CTX = HomeCtx("inc-1")
_RUNNING = replace(workspace(), phase=Phase.RUNNING, home_ctx=_CTX, last_access_at=NOW)
_ASLEEP = replace(_RUNNING, phase=Phase.STANDBY, desired_state=DesiredState.STANDBY)
_ARCHIVED = replace(
    _ASLEEP, phase=Phase.ARCHIVED, desired_state=DesiredState.ARCHIVED, home_ctx=None, archive_key=_KEY
)
_FAILED = replace(_RUNNING, phase=Phase.ERROR, error_reason=ErrorReason.TIMEOUT)
_DELETED = replace(_ARCHIVED, phase=Phase.DELETED, desired_state=DesiredState.DELETED, deleted_at=NOW, home_ctx=None)
_A = Action
_ALWAYS = {_A.EDIT, _A.FORCE_DELETE}


@pytest.mark.parametrize(
    ("row", "actions"),
    [
        (_RUNNING, {_A.OPEN, _A.STOP, _A.ARCHIVE}),
        (_ASLEEP, {_A.OPEN, _A.START, _A.ARCHIVE, _A.DELETE, _A.DUPLICATE}),
        (_ARCHIVED, {_A.START, _A.DELETE, _A.DUPLICATE}),
        (_FAILED, {_A.START, _A.STOP, _A.ARCHIVE, _A.DELETE}),
        (replace(_ASLEEP, desired_state=DesiredState.RUNNING), {_A.OPEN, _A.CANCEL}),
        (replace(_RUNNING, desired_state=DesiredState.STANDBY), {_A.OPEN, _A.KEEP_RUNNING}),
        (replace(_ARCHIVED, desired_state=DesiredState.RUNNING), {_A.OPEN, _A.CANCEL}),
        (replace(workspace(desired=DesiredState.ARCHIVED), phase=Phase.PENDING), {_A.START, _A.DELETE}),
    ],
)
def test_the_owner_is_offered_what_makes_sense_in_each_state(row: Workspace, actions: set[Action]) -> None:
    assert set(allowed_actions(row, Viewer())) == actions | _ALWAYS


def test_a_deleted_workspace_can_be_brought_back_by_an_administrator_until_it_is_purged() -> None:
    admin = Viewer(is_admin=True)
    assert allowed_actions(_DELETED, Viewer()) == ()
    assert allowed_actions(_DELETED, admin) == (_A.UNDELETE,)
    assert allowed_actions(replace(_DELETED, purged_at=NOW), admin) == ()
    with pytest.raises(Conflict, match="retention"):
        check_allowed(_A.UNDELETE, replace(_DELETED, purged_at=NOW))


def test_a_deletion_under_way_can_only_be_forced_and_not_twice() -> None:
    going = replace(_ASLEEP, desired_state=DesiredState.DELETED)
    assert allowed_actions(going, Viewer(is_admin=True)) == ()
    check_allowed(_A.FORCE_DELETE, going)  # a repeated request is accepted and changes nothing


def test_another_users_workspace_is_not_opened() -> None:
    """An administrator may stop it, but not look into it."""
    offered = set(allowed_actions(_RUNNING, Viewer(is_admin=True, is_owner=False)))
    assert offered == {_A.STOP, _A.ARCHIVE} | _ALWAYS
    assert _A.CONTINUE_FROM_ARCHIVE in allowed_actions(_unreachable(), Viewer())
    assert _A.CONTINUE_FROM_ARCHIVE not in allowed_actions(_unreachable(), Viewer(is_owner=False))


def _condition(status: ConditionStatus) -> Condition:
    return Condition(status, "Ready" if status is ConditionStatus.TRUE else "NotObserved")


def _unreachable(
    *,
    volume: ConditionStatus = ConditionStatus.TRUE,
    container: ConditionStatus = ConditionStatus.UNKNOWN,
    reason: ErrorReason = ErrorReason.UNREACHABLE,
) -> Workspace:
    seen = Conditions(volume_ready=_condition(volume), container_ready=_condition(container))
    blocked = Blocked(reason, "the node does not answer", NOW)
    return replace(_RUNNING, conditions=seen, blocked=blocked, archive_key=_KEY)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replace(_unreachable(), blocked=None), "can be reached"),
        (_unreachable(reason=ErrorReason.OUT_OF_SPACE), "can be reached"),
        (_unreachable(container=ConditionStatus.TRUE), "can be reached"),
        # The whole cluster does not answer: another workspace could not start either.
        (_unreachable(volume=ConditionStatus.UNKNOWN), "can be reached"),
        (replace(_unreachable(), archive_key=None), "never archived"),
    ],
)
def test_only_a_workspace_on_a_lost_node_continues_from_its_archive(row: Workspace, why: str) -> None:
    with pytest.raises(Conflict, match=why):
        check_allowed(_A.CONTINUE_FROM_ARCHIVE, row)


def test_a_workspace_in_error_frees_its_place_by_a_stop() -> None:
    assert stop_target(_FAILED) is DesiredState.STANDBY
    # Without a volume there is nothing to keep in standby.
    assert stop_target(replace(_FAILED, home_ctx=None)) is DesiredState.ARCHIVED
    assert stop_target(replace(_RUNNING, home_ctx=None)) is DesiredState.STANDBY


def test_a_request_that_repeats_the_desired_state_is_offered_only_to_clear_an_error() -> None:
    assert _A.START in allowed_actions(_FAILED, Viewer())
    lost = replace(_FAILED, error_reason=ErrorReason.DATA_LOST)
    assert _A.START not in allowed_actions(lost, Viewer())
    stopped = replace(_FAILED, desired_state=DesiredState.STANDBY)
    assert {_A.START, _A.STOP} <= set(allowed_actions(stopped, Viewer()))
    # Stopped while it was in ERROR, and an administrator is needed: stopping again would change nothing.
    assert _A.STOP not in allowed_actions(replace(lost, desired_state=DesiredState.STANDBY), Viewer())


@pytest.mark.parametrize("action", [_A.START, _A.ARCHIVE])
@pytest.mark.parametrize("reason", list(ErrorReason))
def test_lost_data_is_neither_started_nor_archived_over(action: Action, reason: ErrorReason) -> None:
    failed = replace(_FAILED, error_reason=reason)
    if reason in NEEDS_ADMIN:
        with pytest.raises(Conflict, match="administrator"):
            check_allowed(action, failed)
    else:
        check_allowed(action, failed)


def test_an_archived_workspace_is_archived_already_unless_it_is_to_wake() -> None:
    with pytest.raises(Conflict, match="archived already"):
        check_allowed(_A.ARCHIVE, _ARCHIVED)
    # Archived, but desired asleep: the request changes what is desired.
    check_allowed(_A.ARCHIVE, replace(_ARCHIVED, desired_state=DesiredState.STANDBY))


def test_what_is_not_running_is_opened_only_when_that_wakes_it() -> None:
    with pytest.raises(Conflict, match="start it first"):
        check_allowed(_A.OPEN, _ARCHIVED)
    for row in (_RUNNING, _ASLEEP, replace(_ARCHIVED, desired_state=DesiredState.RUNNING)):
        check_allowed(_A.OPEN, row)


# cancelling


def _under_way(operation: Operation, phase: Phase, desired: DesiredState, **changes: object) -> Workspace:
    row = replace(_ASLEEP, operation=operation, op_started_at=NOW, phase=phase, desired_state=desired)
    return replace(row, archive_op_id="op-2", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "target"),
    [
        # A start goes back to what it was before.
        (_under_way(Operation.STARTING, Phase.STANDBY, DesiredState.RUNNING), DesiredState.STANDBY),
        (_under_way(Operation.RESTORING, Phase.ARCHIVED, DesiredState.RUNNING), DesiredState.ARCHIVED),
        (_under_way(Operation.NONE, Phase.STANDBY, DesiredState.RUNNING), DesiredState.STANDBY),
        (_under_way(Operation.NONE, Phase.ARCHIVED, DesiredState.RUNNING), DesiredState.ARCHIVED),
        (_under_way(Operation.PROVISIONING, Phase.PENDING, DesiredState.RUNNING), DesiredState.STANDBY),
        # An archive goes back to sleep, until its key is committed: its volume may be partly removed.
        (_under_way(Operation.ARCHIVING, Phase.STANDBY, DesiredState.ARCHIVED), DesiredState.STANDBY),
        (
            _under_way(
                Operation.ARCHIVING,
                Phase.STANDBY,
                DesiredState.ARCHIVED,
                archive_key=archive_key_of(WORKSPACE_ID, "op-2"),
            ),
            None,
        ),
        # Cancelled already, or to be deleted.
        (_under_way(Operation.STARTING, Phase.STANDBY, DesiredState.STANDBY), None),
        (_under_way(Operation.ARCHIVING, Phase.STANDBY, DesiredState.DELETED), None),
        # Nothing to cancel.
        (_under_way(Operation.STOPPING, Phase.RUNNING, DesiredState.STANDBY), None),
        (_under_way(Operation.STOPPING, Phase.STANDBY, DesiredState.RUNNING), None),
        (_under_way(Operation.PROVISIONING, Phase.PENDING, DesiredState.STANDBY), None),
        (_RUNNING, None),
        (_ASLEEP, None),
    ],
)
def test_cancelling_goes_back_to_where_nothing_is_lost(row: Workspace, target: DesiredState | None) -> None:
    assert cancel_target(row) is target
    if target is None:
        assert _A.CANCEL not in allowed_actions(row, Viewer())
    else:
        check_allowed(_A.CANCEL, row)


@given(workspaces())
def test_cancelling_never_deletes_and_never_repeats(row: Workspace) -> None:
    target = cancel_target(row)
    assert target in (None, DesiredState.STANDBY, DesiredState.ARCHIVED)
    if target is not None:
        assert row.desired_state is not target
        assert cancel_target(replace(row, desired_state=target, updated_at=NOW + timedelta(seconds=1))) is None


@pytest.mark.parametrize(
    ("row", "container", "expected"),
    [
        (_RUNNING, ConditionStatus.TRUE, True),
        (_ASLEEP, ConditionStatus.FALSE, False),
        # A cancelled start ends in STANDBY while its instance has not answered yet.
        (_ASLEEP, ConditionStatus.UNKNOWN, True),
        (_ASLEEP, ConditionStatus.TRUE, True),
        (replace(_ASLEEP, operation=Operation.STARTING), ConditionStatus.FALSE, True),
        (_ARCHIVED, ConditionStatus.UNKNOWN, False),
        (_FAILED, ConditionStatus.UNKNOWN, True),
        (_FAILED, ConditionStatus.FALSE, False),
    ],
)
def test_a_workspace_is_transferred_only_if_no_instance_can_know_its_owners_secrets(
    row: Workspace, container: ConditionStatus, expected: bool
) -> None:
    seen = replace(row, conditions=replace(row.conditions, container_ready=Condition(container, "Seen")))
    assert may_have_instance(seen) is expected
