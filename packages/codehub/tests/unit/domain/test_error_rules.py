"""When a workspace is in error, what heals it, and what counts as a loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codehub.domain.judge import level_of, phase_of, violation_of
from codehub.domain.model import (
    Condition,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
    Workspace,
)
from codehub.domain.observed import (
    Observed,
    VolumeSeen,
    VolumeState,
)
from codehub.domain.plan import Begin, Fail, Heal, Rest, observe
from codehub.domain.progress import (
    heal,
    is_found_again,
)
from codehub.domain.stores import Absent, Use, judge_store, too_many_losses
from codehub.domain.stores import Claim as Claim_
from testing.codehub.observations import (
    ABSENT,
    ARCHIVED,
    ASLEEP,
    COMPLETE,
    GONE,
    KEY,
    LOST,
    RUNS,
    step,
)
from testing.codehub.workspaces import NOW, workspace


def test_a_workspace_in_error_rests_until_it_is_deleted_or_healed() -> None:
    failed = replace(LOST, error_reason=ErrorReason.TIMEOUT)
    assert step(failed, COMPLETE, None, GONE) == Rest()
    assert step(replace(failed, desired_state=DesiredState.DELETED), COMPLETE, None, GONE) == Begin(
        Operation.DELETING
    )
    assert step(LOST, ABSENT, None, GONE) == Rest()
    assert step(LOST, COMPLETE, None, GONE) == Heal()


@pytest.mark.parametrize(
    ("row", "seen", "found"),
    [
        (LOST, (COMPLETE, None, GONE), True),
        (LOST, (None, None, GONE), False),
        (LOST, (VolumeSeen(VolumeState.COMPLETE, HomeCtx("inc-2")), None, GONE), False),
        (replace(LOST, home_ctx=None, archive_key=KEY), (ABSENT, True, GONE), True),
        (replace(LOST, home_ctx=None, archive_key=KEY), (ABSENT, None, GONE), False),
        (replace(LOST, home_ctx=None, archive_key=KEY), (None, True, GONE), False),
        (replace(LOST, home_ctx=None), (ABSENT, True, GONE), False),
        (replace(LOST, error_reason=ErrorReason.TIMEOUT), (COMPLETE, None, GONE), False),
        (replace(LOST, desired_state=DesiredState.DELETED), (COMPLETE, None, GONE), False),
    ],
)
def test_lost_data_is_found_when_exactly_the_recorded_data_is_seen(
    row: Workspace, seen: tuple[Any, Any, Any], found: bool
) -> None:
    assert is_found_again(observe(row, Observed(*seen), NOW)) is found


def test_healing_clears_the_error_and_nothing_else() -> None:
    row = replace(LOST, error_message="gone", error_count=3, retry_at=NOW)
    healed = heal(row)
    assert healed == replace(row, error_reason=None, error_message=None, error_count=0, retry_at=None)


def test_an_instance_without_its_volume_is_stopped_when_its_user_retries() -> None:
    """The user started it again, which cleared the reason; the phase is still ERROR."""
    retried = replace(workspace(), phase=Phase.ERROR)
    assert step(retried, ABSENT, None, RUNS) == Begin(Operation.STOPPING)
    assert step(replace(retried, phase=Phase.PENDING), ABSENT, None, RUNS) == Fail(
        ErrorReason.CONTAINER_WITHOUT_VOLUME, "an instance runs without its volume"
    )


def _seen(row: Workspace, **conditions: Condition) -> Workspace:
    return replace(row, conditions=replace(row.conditions, **conditions))


def test_a_violation_keeps_the_phase_until_it_is_recorded_with_its_reason() -> None:
    broken = _seen(ASLEEP, healthy=Condition(ConditionStatus.FALSE, "DataLost"))
    assert violation_of(broken) is ErrorReason.DATA_LOST
    assert level_of(broken) is Phase.ERROR
    assert phase_of(broken) is Phase.STANDBY
    assert phase_of(replace(broken, error_reason=ErrorReason.DATA_LOST)) is Phase.ERROR
    assert violation_of(_seen(ASLEEP, healthy=Condition(ConditionStatus.FALSE, "New"))) is ErrorReason.ACTION_FAILED
    assert violation_of(ASLEEP) is None


def test_a_deletion_is_shown_before_everything_else() -> None:
    assert phase_of(replace(LOST, desired_state=DesiredState.DELETED)) is Phase.DELETING
    assert phase_of(replace(LOST, deleted_at=NOW)) is Phase.DELETED


def test_an_archive_that_is_lost_while_it_is_deleted_leaves_nothing() -> None:
    row = replace(ARCHIVED, desired_state=DesiredState.DELETED, operation=Operation.DELETING)
    looked = observe(row, Observed(ABSENT, False, GONE), NOW)
    assert level_of(looked) is Phase.PENDING
    assert level_of(observe(row, Observed(ABSENT, True, GONE), NOW)) is Phase.ARCHIVED
    assert level_of(observe(row, Observed(ABSENT, None, GONE), NOW)) is None


@pytest.mark.parametrize(
    ("has_data", "proven", "seen", "verdict"),
    [
        (False, False, None, Claim_()),
        (False, False, "id", Use("id", record=True)),
        (True, True, None, Claim_()),
        (True, True, "id", Use("id", record=True)),
        (True, False, None, None),
        (True, False, "id", None),
    ],
)
def test_a_store_without_a_record_is_taken_if_it_is_new_or_holds_our_data(
    has_data: bool, proven: bool, seen: str | None, verdict: object
) -> None:
    found = judge_store("homes", "/srv", seen, None, has_data=has_data, proven=proven)
    assert isinstance(found, Absent) if verdict is None else found == verdict


@pytest.mark.parametrize(
    ("lost", "total", "alarm"), [(3, 3, False), (4, 39, True), (4, 40, False), (4, 41, False), (0, 0, False)]
)
def test_many_losses_at_once_are_likelier_a_mistake(lost: int, total: int, alarm: bool) -> None:
    assert too_many_losses(lost, total, 3) is alarm
