"""Continuing from the last archive: when it is offered, and what the new workspace is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codehub.domain.actions import Action, Viewer, allowed_actions, check_allowed
from codehub.domain.continuing import archived_at, continued
from codehub.domain.errors import Conflict
from codehub.domain.gc import archive_key_of
from codehub.domain.ids import time_of
from codehub.domain.model import DesiredState, HomeCtx, Phase, Workspace
from codehub.domain.observed import UNREACHABLE_AFTER, InstanceSeen, Observed, VolumeSeen, VolumeState
from codehub.domain.plan import Rest, decide, observe
from testing.codehub.workspaces import NOW, WORKSPACE_ID, workspace

OP = "01980000-0000-7000-8000-0000000000bb"
NEW_ID = "01980000-0000-7000-8000-0000000000cc"
CTX = HomeCtx("inc-1", archive_key_of(WORKSPACE_ID, OP))
LOST = "the node n1 does not answer since 2026-11-16T12:00:00Z"
ON_A_LOST_NODE = Observed(
    volume=VolumeSeen(VolumeState.COMPLETE, CTX), archive=True, instance=InstanceSeen(exists=True, unknown=LOST)
)


def on_a_lost_node(archive_key: str | None = CTX.restore_marker, seen: Observed = ON_A_LOST_NODE) -> Workspace:
    """Long enough that it is reported."""
    row = replace(workspace(), phase=Phase.RUNNING, home_ctx=CTX, archive_key=archive_key)
    return observe(observe(row, seen, NOW), seen, NOW + UNREACHABLE_AFTER)


def test_a_workspace_on_a_lost_node_names_it_offers_to_continue_and_nothing_is_done_to_it() -> None:
    lost = on_a_lost_node()
    assert lost.blocked is not None
    assert lost.blocked.message == LOST
    assert Action.CONTINUE_FROM_ARCHIVE in allowed_actions(lost, Viewer())
    assert Action.CONTINUE_FROM_ARCHIVE not in allowed_actions(lost, Viewer(is_admin=True, is_owner=False))
    for desired in DesiredState:
        assert decide(replace(lost, desired_state=desired), NOW + UNREACHABLE_AFTER, was=Phase.RUNNING) == Rest()


def test_it_is_not_offered_while_it_can_be_reached_was_never_archived_or_the_cluster_is_away() -> None:
    running = replace(ON_A_LOST_NODE, instance=InstanceSeen(exists=True, running=True, healthy=True))
    for row in (on_a_lost_node(seen=running), on_a_lost_node(None), on_a_lost_node(seen=Observed(archive=True))):
        with pytest.raises(Conflict):
            check_allowed(Action.CONTINUE_FROM_ARCHIVE, row)


def test_the_new_workspace_is_the_old_one_as_archived_and_has_nothing_of_its_state() -> None:
    lost = replace(on_a_lost_node(), copy_of="another")
    new = continued(lost, NEW_ID, NOW)
    assert (new.id, new.name, new.archive_key) == (NEW_ID, "w (continued)", lost.archive_key)
    assert (new.home_ctx, new.blocked, new.desired_state) == (None, None, DesiredState.RUNNING)
    assert NEW_ID in new.home_store_key
    assert new.copy_of == lost.id, "not what the old one was a copy of"
    seen = Observed(VolumeSeen(VolumeState.ABSENT), archive=True, instance=InstanceSeen(exists=False))
    assert observe(new, seen, NOW).phase is Phase.ARCHIVED
    assert continued(new, WORKSPACE_ID, NOW).name == "w (continued)"


def test_an_archive_is_as_old_as_its_operation() -> None:
    assert archived_at(on_a_lost_node()) == time_of(OP)
    assert archived_at(workspace()) is None
