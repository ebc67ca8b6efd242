"""Small rules of the domain whose absence would cost data, one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from codehub.domain.gc import Claim, archive_key_of, is_protected
from codehub.domain.judge import level_of
from codehub.domain.model import (
    Condition,
    Conditions,
    ConditionStatus,
    DesiredState,
    ErrorReason,
    HomeCtx,
    Operation,
    Phase,
)
from codehub.domain.observed import InstanceSeen, Observed, VolumeSeen, VolumeState, apply_observation, instance_runs
from codehub.domain.plan import Fail, Heal, Rest, decide, observe
from codehub.domain.progress import begin, complete, heal, to_error
from codehub.domain.transitions import is_done
from codehub.domain.ttl import ActivityCoverage, extend_coverage, gap_time
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace

_YES = Condition(ConditionStatus.TRUE, "Ready")
_CTX = HomeCtx("inc-1")
_WHOLE = VolumeSeen(VolumeState.COMPLETE, _CTX)
_ABSENT = VolumeSeen(VolumeState.ABSENT)
_GONE = InstanceSeen(exists=False)


def test_an_instance_that_could_not_be_looked_at_is_neither_running_nor_absent() -> None:
    row = replace(workspace(desired=DesiredState.STANDBY), home_ctx=_CTX, phase=Phase.RUNNING)
    observed = observe(row, Observed(volume=_WHOLE), NOW)
    assert instance_runs(observed.conditions.container_ready) is None
    assert level_of(observed) is None
    assert observed.phase is Phase.RUNNING
    assert decide(observed, NOW, was=Phase.RUNNING) == Rest()


def test_a_volume_of_another_incarnation_is_not_the_home() -> None:
    row = replace(workspace(), home_ctx=_CTX, phase=Phase.STANDBY)
    other = Observed(VolumeSeen(VolumeState.COMPLETE, HomeCtx("inc-2")), None, _GONE)
    seen = apply_observation(row, other, NOW)
    assert not seen.conditions.volume_ready.is_true
    assert isinstance(decide(observe(row, other, NOW), NOW, was=Phase.STANDBY), Fail)


@pytest.mark.parametrize(
    "operation",
    [Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE, Operation.RESTORING, Operation.DELETING],
)
def test_an_operation_that_may_write_an_archive_never_uses_an_id_again(operation: Operation) -> None:
    assert begin(replace(workspace(), archive_op_id="op-1"), operation, "op-2", NOW).archive_op_id == "op-2"


def test_a_deleted_workspace_has_no_home_recorded_that_an_undelete_would_miss() -> None:
    row = replace(workspace(desired=DesiredState.DELETED), operation=Operation.DELETING, home_ctx=_CTX)
    assert complete(row, NOW).home_ctx is None


def test_archiving_is_not_done_by_an_older_archive_when_the_volume_vanished() -> None:
    there = Conditions(
        volume_ready=Condition(ConditionStatus.FALSE, "NotFound"),
        archive_ready=_YES,
        container_ready=Condition(ConditionStatus.FALSE, "NotFound"),
    )
    row = replace(workspace(), operation=Operation.ARCHIVING, archive_op_id="op-2", conditions=there, home_ctx=_CTX)
    assert not is_done(replace(row, archive_key=archive_key_of(WORKSPACE_ID, "op-1")))
    assert is_done(replace(row, archive_key=archive_key_of(WORKSPACE_ID, "op-2")))


def test_what_was_lost_and_is_seen_again_heals_and_nothing_else_does() -> None:
    row = replace(workspace(desired=DesiredState.STANDBY), home_ctx=_CTX, phase=Phase.STANDBY)
    lost = observe(row, Observed(_ABSENT, None, _GONE), NOW)
    decision = decide(lost, NOW, was=Phase.STANDBY)
    assert isinstance(decision, Fail)
    failed = to_error(lost, decision.reason, 1, NOW, decision.message)
    for seen in (
        Observed(_ABSENT, None, _GONE),
        Observed(None, None, None),
        Observed(VolumeSeen(VolumeState.INCOMPLETE), None, _GONE),
        Observed(VolumeSeen(VolumeState.COMPLETE, HomeCtx("another")), None, _GONE),
    ):
        assert decide(observe(failed, seen, NOW), NOW, was=Phase.ERROR) == Rest()
    found = observe(failed, Observed(_WHOLE, None, _GONE), NOW)
    assert decide(found, NOW, was=Phase.ERROR) == Heal()
    healed = observe(heal(found), Observed(_WHOLE, None, _GONE), NOW)
    assert (healed.phase, healed.error_reason, healed.home_ctx) == (Phase.STANDBY, None, _CTX)


@pytest.mark.parametrize("desired", list(DesiredState))
def test_what_fails_is_in_error_except_a_deletion_and_the_phase_changed_only_if_it_did(desired: DesiredState) -> None:
    later = NOW + timedelta(hours=1)
    row = replace(workspace(desired=desired), phase=Phase.RUNNING, operation=Operation.STARTING, phase_changed_at=NOW)
    failed = to_error(row, ErrorReason.TIMEOUT, 3, later, "too slow")
    assert failed.phase is (Phase.DELETING if desired is DesiredState.DELETED else Phase.ERROR)
    assert (failed.operation, failed.error_reason, failed.error_count) == (Operation.NONE, ErrorReason.TIMEOUT, 3)
    assert failed.phase_changed_at == later
    again = to_error(failed, ErrorReason.TIMEOUT, 4, later + timedelta(hours=1))
    assert again.phase_changed_at == later, "it is in this phase since then"


def test_time_without_a_leader_does_not_count_as_idle() -> None:
    before = ActivityCoverage(NOW - timedelta(hours=1))
    after = extend_coverage(
        before,
        NOW,
        unbroken=True,
        longest_gap=timedelta(minutes=3),
        lag=timedelta(seconds=30),
        keep=timedelta(days=7),
    )
    assert gap_time(after.gaps, NOW - timedelta(hours=1), NOW) == timedelta(hours=1)


def test_the_gc_keeps_what_may_be_the_only_copy() -> None:
    claim = Claim(WORKSPACE_ID, Phase.STANDBY, None, None, frozenset())
    assert not is_protected(claim, "op-1")
    assert is_protected(replace(claim, error_recorded=True), "op-1")
    assert is_protected(replace(claim, home_is_seen=False), "op-1")
    assert is_protected(replace(claim, phase=Phase.ERROR), "op-1")


def test_the_gc_keeps_an_archive_that_another_workspace_begins_with_even_after_a_purge() -> None:
    used = frozenset({archive_key_of(WORKSPACE_ID, "op-1")})
    claim = Claim(WORKSPACE_ID, Phase.DELETED, None, None, frozenset(), purged_at=NOW, used_by_others=used)
    assert is_protected(claim, "op-1")
    assert not is_protected(claim, "op-2")


def test_the_gc_keeps_what_is_being_written_for_a_copy_until_the_copy_refers_to_it() -> None:
    claim = Claim(WORKSPACE_ID, Phase.STANDBY, None, None, frozenset(), copying=frozenset({"op-1"}))
    assert is_protected(claim, "op-1.1763350000000000")
    assert is_protected(replace(claim, purged_at=NOW), "op-1.1763350000000000")
    assert not is_protected(claim, "op-11.1763350000000000")
    assert not is_protected(replace(claim, copying=frozenset()), "op-1.1763350000000000")
