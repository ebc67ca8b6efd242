"""Workspaces for tests: a well-formed one by default, and hypothesis strategies over all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from codehub.domain.gc import archive_key_of
from codehub.domain.model import DesiredState, ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.domain.observed import InstanceSeen, Observed, VolumeSeen, VolumeState

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
WORKSPACE_ID = "01980000-0000-7000-8000-000000000001"


def workspace(
    id: str = WORKSPACE_ID,
    *,
    desired: DesiredState = DesiredState.RUNNING,
    owner: str = "01980000-0000-7000-8000-0000000000aa",
    created_at: datetime = NOW,
) -> Workspace:
    return Workspace(
        id=id,
        owner_user_id=owner,
        name="w",
        image_ref="code-server",
        instance_backend="process",
        storage_backend="local-dir",
        home_store_key=f"users/{owner}/workspaces/{id}/home",
        desired_state=desired,
        created_at=created_at,
        updated_at=created_at,
        phase_changed_at=created_at,
    )


KEYS = [None, archive_key_of(WORKSPACE_ID, "op-1"), archive_key_of(WORKSPACE_ID, "op-2")]
_contexts = st.builds(HomeCtx, st.sampled_from(["inc-1", "inc-2"]), st.sampled_from(KEYS))
_times = st.integers(-7200, 7200).map(lambda seconds: NOW + timedelta(seconds=seconds))

volumes = st.one_of(
    st.sampled_from([VolumeSeen(VolumeState.ABSENT), VolumeSeen(VolumeState.INCOMPLETE)]),
    st.builds(VolumeSeen, st.just(VolumeState.COMPLETE), _contexts),
)
instances = st.sampled_from(
    [
        InstanceSeen(exists=False),
        InstanceSeen(exists=True),
        InstanceSeen(exists=True, running=True),
        InstanceSeen(exists=True, running=True, healthy=True),
        InstanceSeen(exists=True, running=True, healthy=False),
    ]
)
observations = st.builds(Observed, st.none() | volumes, st.none() | st.booleans(), st.none() | instances)
complete_observations = st.builds(Observed, volumes, st.booleans(), instances)


@st.composite
def workspaces(draw: st.DrawFn) -> Workspace:
    """Return any row that the table's constraints allow."""
    row = workspace(desired=draw(st.sampled_from(DesiredState)))
    operation = draw(st.sampled_from(Operation))
    if operation is Operation.DELETING:  # a requested deletion cannot be reverted while it is in progress
        row = replace(row, desired_state=DesiredState.DELETED)
    error = draw(st.none() | st.sampled_from(ErrorReason))
    deleted = row.desired_state is DesiredState.DELETED
    phases = [Phase.DELETING] if deleted else [phase for phase in Phase if phase.value[:3] != "DEL"]
    if operation is not Operation.NONE and not deleted:
        error = None
        phases.remove(Phase.ERROR)
    elif error is not None and not deleted:
        phases = [Phase.ERROR]
    return replace(
        row,
        phase=draw(st.sampled_from(phases)),
        operation=operation,
        error_reason=error,
        error_count=draw(st.integers(0, 3)) if error or operation is not Operation.NONE else 0,
        home_ctx=draw(st.none() | _contexts),
        archive_key=draw(st.sampled_from(KEYS)),
        archive_op_id=draw(st.sampled_from(["op-1", "op-2"])),
        retry_at=draw(st.none() | _times),
        last_access_at=draw(st.none() | _times),
        phase_changed_at=draw(_times),
    )
