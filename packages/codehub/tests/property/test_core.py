"""The pure core: what holds of judge, plan and progress for every row and every observation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from codehub.domain.drawing import states_page
from codehub.domain.errors import ArchiveCorrupted, Transient
from codehub.domain.gc import archive_key_of
from codehub.domain.judge import LEVELS, level_of
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.domain.observed import InstanceSeen, Observed, VolumeSeen, VolumeState
from codehub.domain.plan import Begin, Cancel, CarryOn, Complete, Decision, Fail, Heal, Rest, Wait, decide, observe
from codehub.domain.progress import BACKOFF_LONGEST_S, backoff_s, begin, cancel, complete, fail, failure_of, heal
from codehub.domain.transitions import EDGES, WORK
from testing.codehub.workspaces import NOW, complete_observations, observations, workspace, workspaces


def step(row: Workspace, seen: Observed) -> tuple[Workspace, Decision]:
    observed = observe(row, seen, NOW)
    return observed, decide(observed, NOW, was=row.phase)


def committed(row: Workspace, decision: Decision) -> Workspace:
    match decision:
        case Begin(operation):
            return begin(row, operation, "op-new", NOW)
        case Complete():
            return complete(row, NOW)
        case Fail(reason):
            failure = failure_of(ArchiveCorrupted("x"))
            return fail(row, replace(failure, reason=reason), NOW, max_retry=3, jitter=0.5)
        case Cancel():
            return cancel(row, NOW)
        case Heal():
            return heal(row)
        case Rest() | CarryOn() | Wait():
            return row


@given(workspaces(), observations)
def test_the_same_input_gives_the_same_plan(row: Workspace, seen: Observed) -> None:
    assert step(row, seen) == step(row, seen)


@given(workspaces(), observations)
def test_error_implies_that_no_operation_is_under_way(row: Workspace, seen: Observed) -> None:
    observed, decision = step(row, seen)
    after = committed(observed, decision)
    assert after.phase is not Phase.ERROR or after.operation is Operation.NONE
    if isinstance(decision, Fail) and after.operation is Operation.NONE and after.phase is Phase.ERROR:
        assert after.error_reason is not None


@given(workspaces(), observations)
def test_what_could_not_be_seen_never_leads_to_a_destructive_step(row: Workspace, seen: Observed) -> None:
    _, decision = step(row, seen)
    if seen.volume is None:
        assert not isinstance(decision, Fail)
        if isinstance(decision, Begin | CarryOn):
            assert decision.operation is row.operation is Operation.STOPPING
    if seen.instance is None and isinstance(decision, Begin | CarryOn):
        assert decision.operation not in (Operation.ARCHIVING, Operation.DELETING, Operation.STOPPING)


@given(workspaces(), observations)
def test_a_level_that_is_unknown_leaves_the_phase_as_it_was(row: Workspace, seen: Observed) -> None:
    observed, _ = step(row, seen)
    if level_of(observed) is None and row.desired_state is not DesiredState.DELETED:
        assert observed.phase is row.phase
    assert (observed.phase_changed_at != row.phase_changed_at) <= (observed.phase is not row.phase)


@given(workspaces(), observations)
def test_operations_begin_only_along_the_edges_of_the_table(row: Workspace, seen: Observed) -> None:
    observed, decision = step(row, seen)
    if isinstance(decision, Begin):
        assert row.operation is Operation.NONE
        level = level_of(replace(observed, phase=row.phase))
        along = any(
            edge.level is level
            and observed.desired_state in edge.desired
            and edge.operation is decision.operation
            and (edge.only_if is None or edge.only_if.holds(observed))
            for edge in EDGES
        )
        assert along


def test_there_is_at_most_one_edge_from_a_level_towards_a_desired_state() -> None:
    plain = [(edge.level, desired) for edge in EDGES if edge.only_if is None for desired in edge.desired]
    assert len(plain) == len(set(plain))


def test_the_page_shows_every_requirement_that_the_code_runs_on() -> None:
    page = states_page()
    assert "PENDING --> PENDING: STOPPING if an instance runs" in page, "the recovery edge"
    assert "| container_ready and volume_ready |" in page, "a start is done only with its volume"
    texts = [requirement.text for work in WORK.values() for requirement in work.done_when]
    assert all(text in page for text in texts)


@given(workspaces(), observations, st.sampled_from([VolumeState.ABSENT, VolumeState.INCOMPLETE]))
def test_lost_data_is_never_answered_by_an_empty_or_older_home(
    row: Workspace, seen: Observed, state: VolumeState
) -> None:
    _, decision = step(replace(row, home_ctx=HomeCtx("recorded")), replace(seen, volume=VolumeSeen(state)))
    if isinstance(decision, Begin):
        assert decision.operation not in (Operation.PROVISIONING, Operation.RESTORING, Operation.STARTING)


@given(workspaces(), complete_observations)
def test_archiving_is_done_only_when_the_archive_is_committed_and_the_volume_gone(
    row: Workspace, seen: Observed
) -> None:
    observed, decision = step(replace(row, operation=Operation.ARCHIVING, phase=Phase.STANDBY), seen)
    if isinstance(decision, Complete):
        assert seen.archive is True
        assert observed.archive_key is not None
        assert seen.volume == VolumeSeen(VolumeState.ABSENT)


@given(workspaces(), observations)
def test_a_new_operation_that_may_write_an_archive_takes_a_new_op_id(row: Workspace, seen: Observed) -> None:
    observed, decision = step(row, seen)
    if isinstance(decision, Begin) and decision.operation in (Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE):
        assert committed(observed, decision).archive_op_id == "op-new"


class World:
    """The smallest world in which every operation succeeds at once."""

    def __init__(self, seen: Observed, archives: set[str]) -> None:
        assert seen.volume is not None
        assert seen.instance is not None
        self.volume, self.instance, self.archives = seen.volume, seen.instance, archives
        if self.instance.running and self.instance.healthy is None:
            self.instance = InstanceSeen(exists=True, running=True, healthy=False)

    def seen(self, row: Workspace) -> Observed:
        return Observed(self.volume, row.archive_key in self.archives, self.instance)

    def act(self, row: Workspace) -> Workspace:
        match row.operation:
            case Operation.PROVISIONING:
                if self.volume.state is not VolumeState.COMPLETE:
                    self.volume = VolumeSeen(VolumeState.COMPLETE, HomeCtx("made", row.archive_key))
                return replace(row, home_ctx=self.volume.ctx)
            case Operation.RESTORING:
                self.volume = VolumeSeen(VolumeState.COMPLETE, HomeCtx("restored", row.archive_key))
                return replace(row, home_ctx=self.volume.ctx)
            case Operation.STARTING:
                self.instance = InstanceSeen(exists=True, running=True, healthy=True)
            case Operation.STOPPING:
                self.instance = InstanceSeen(exists=True)
            case Operation.CREATE_EMPTY_ARCHIVE | Operation.DUPLICATING:
                return self._archived(row)
            case Operation.ARCHIVING | Operation.DELETING:
                self.instance = InstanceSeen(exists=False)
                if self.volume.state is VolumeState.COMPLETE or row.operation is Operation.ARCHIVING:
                    row = self._archived(row)
                self.volume = VolumeSeen(VolumeState.ABSENT)
            case Operation.NONE:
                raise AssertionError("acted on nothing")
        return row

    def _archived(self, row: Workspace) -> Workspace:
        assert row.archive_op_id is not None
        key = archive_key_of(row.id, row.archive_op_id)
        self.archives.add(key)
        return replace(row, archive_key=key)


def _run(row: Workspace, world: World) -> tuple[Workspace, int]:
    for steps in range(30):
        observed, decision = step(row, world.seen(row))
        row = committed(observed, decision)
        match decision:
            case Rest():
                return row, steps
            case Begin() | CarryOn():
                row = world.act(row)
            case Wait():
                row = replace(row, retry_at=None)
            case Complete() | Fail():
                pass
    raise AssertionError(f"did not come to rest: {row}")


_WANTED = {
    DesiredState.RUNNING: Phase.RUNNING,
    DesiredState.STANDBY: Phase.STANDBY,
    DesiredState.ARCHIVED: Phase.ARCHIVED,
    DesiredState.DELETED: Phase.DELETED,
}


@given(workspaces(), complete_observations)
def test_repeated_success_reaches_the_desired_state_or_rests_in_error(row: Workspace, seen: Observed) -> None:
    archives = {row.archive_key} if row.archive_key and seen.archive else set()
    ended, steps = _run(row, World(seen, archives))
    assert steps <= 14
    assert ended.phase is _WANTED[row.desired_state] or ended.phase is Phase.ERROR
    if ended.phase is Phase.ERROR:
        assert ended.error_reason is not None
    else:
        assert ended.operation is Operation.NONE
        assert ended.error_count == 0


@given(st.sampled_from(sorted(LEVELS)), st.sampled_from(DesiredState))
def test_every_level_reaches_every_desired_state_and_then_plans_nothing(level: Phase, desired: DesiredState) -> None:
    row, world = _at(level)
    ended, steps = _run(replace(row, desired_state=desired), world)
    assert ended.phase is _WANTED[desired]
    assert steps <= 8
    assert step(ended, world.seen(ended)) == (ended, Rest())


def _at(level: Phase) -> tuple[Workspace, World]:
    row = workspace()
    absent, whole = VolumeSeen(VolumeState.ABSENT), VolumeSeen(VolumeState.COMPLETE, HomeCtx("made"))
    off, on = InstanceSeen(exists=False), InstanceSeen(exists=True, running=True, healthy=True)
    key = archive_key_of(row.id, "op-0")
    match level:
        case Phase.PENDING:
            return row, World(Observed(absent, False, off), set())
        case Phase.ARCHIVED:
            return replace(row, archive_key=key), World(Observed(absent, True, off), {key})
        case Phase.STANDBY:
            return replace(row, home_ctx=whole.ctx), World(Observed(whole, False, off), set())
        case _:
            return replace(row, home_ctx=whole.ctx), World(Observed(whole, False, on), set())


def test_a_whole_volume_is_adopted_only_when_it_was_made_from_what_is_recorded() -> None:
    key, other = archive_key_of(workspace().id, "op-1"), archive_key_of(workspace().id, "op-2")
    row = replace(workspace(desired=DesiredState.ARCHIVED), archive_key=key)
    same = Observed(VolumeSeen(VolumeState.COMPLETE, HomeCtx("late", key)), True, InstanceSeen(exists=False))
    stale = Observed(VolumeSeen(VolumeState.COMPLETE, HomeCtx("late", other)), True, InstanceSeen(exists=False))
    assert observe(row, same, NOW).phase is Phase.STANDBY
    assert observe(row, same, NOW).home_ctx == HomeCtx("late", key)
    assert observe(row, stale, NOW).phase is Phase.ARCHIVED
    assert observe(row, stale, NOW).home_ctx is None


def test_a_container_without_a_volume_is_an_error_and_recovery_takes_it_away_first() -> None:
    row = replace(workspace(), phase=Phase.RUNNING)
    seen = Observed(VolumeSeen(VolumeState.ABSENT), False, InstanceSeen(exists=True, running=True, healthy=True))
    _, decision = step(row, seen)
    assert decision == Fail(ErrorReason.CONTAINER_WITHOUT_VOLUME, "an instance runs without its volume")
    recovered = replace(row, phase=Phase.ERROR, error_reason=None)
    observed, decision = step(recovered, seen)
    assert decision == Begin(Operation.STOPPING)
    assert observed.phase is Phase.PENDING


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_grows_from_two_seconds_to_five_minutes(count: int, jitter: float) -> None:
    assert 1.6 <= backoff_s(count, jitter) <= BACKOFF_LONGEST_S
    assert backoff_s(count, jitter) <= backoff_s(count + 1, jitter) or backoff_s(count, jitter) >= 240


@given(workspaces(), st.integers(0, 5), st.booleans())
def test_a_failed_attempt_is_tried_again_or_becomes_an_error_in_one_change(
    row: Workspace, max_retry: int, terminal: bool
) -> None:
    assume(row.operation not in (Operation.NONE, Operation.DELETING))
    error = ArchiveCorrupted("broken") if terminal else Transient("not now")
    after = fail(row, failure_of(error), NOW, max_retry=max_retry, jitter=0.5)
    assert after.error_count == row.error_count + 1
    assert after.archive_op_id == row.archive_op_id
    if terminal or after.error_count >= max_retry:
        assert after.operation is Operation.NONE
        assert after.error_reason is (ErrorReason.ARCHIVE_CORRUPTED if terminal else ErrorReason.RETRY_EXCEEDED)
    else:
        assert after.operation is row.operation
        assert after.retry_at is not None
        assert after.retry_at > NOW


@given(workspaces(), st.booleans())
def test_deletion_never_gives_up(row: Workspace, terminal: bool) -> None:
    deleting = replace(row, operation=Operation.DELETING, desired_state=DesiredState.DELETED, phase=Phase.DELETING)
    error = ArchiveCorrupted("broken") if terminal else Transient("not now")
    after = fail(deleting, failure_of(error), NOW, max_retry=0, jitter=0.5)
    assert after.operation is Operation.DELETING
    assert after.retry_at is not None
    assert (after.retry_at - NOW).total_seconds() == BACKOFF_LONGEST_S


def test_the_page_of_states_is_what_the_tables_say() -> None:
    page = Path(__file__).parents[4] / "docs/states.md"
    assert page.read_text(encoding="utf-8") == states_page(), "run: python -m codehub.domain.drawing > docs/states.md"
