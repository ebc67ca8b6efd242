"""The edges: which operation leads from which level towards which desired state, as data.

`docs/states.md` is drawn from these tables; `plan` reads them and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from codehub.domain.model import DesiredState, Operation, Phase


@dataclass(frozen=True, slots=True)
class Edge:
    level: Phase
    desired: frozenset[DesiredState]
    operation: Operation
    reaches: Phase


@dataclass(frozen=True, slots=True)
class Work:
    """What an operation does, when it is done, and which conditions must be known before it is carried on."""

    does: str
    done_when: str
    needs: frozenset[str]


_R, _S, _A, _D = DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED, DesiredState.DELETED

EDGES: tuple[Edge, ...] = (
    Edge(Phase.PENDING, frozenset({_S, _R}), Operation.PROVISIONING, Phase.STANDBY),
    Edge(Phase.PENDING, frozenset({_A}), Operation.CREATE_EMPTY_ARCHIVE, Phase.ARCHIVED),
    Edge(Phase.ARCHIVED, frozenset({_S, _R}), Operation.RESTORING, Phase.STANDBY),
    Edge(Phase.STANDBY, frozenset({_R}), Operation.STARTING, Phase.RUNNING),
    Edge(Phase.RUNNING, frozenset({_S, _A, _D}), Operation.STOPPING, Phase.STANDBY),
    Edge(Phase.STANDBY, frozenset({_A, _D}), Operation.ARCHIVING, Phase.ARCHIVED),
    Edge(Phase.PENDING, frozenset({_D}), Operation.DELETING, Phase.DELETED),
    Edge(Phase.ARCHIVED, frozenset({_D}), Operation.DELETING, Phase.DELETED),
    Edge(Phase.ERROR, frozenset({_D}), Operation.DELETING, Phase.DELETED),
)

WORK: Mapping[Operation, Work] = MappingProxyType(
    {
        Operation.PROVISIONING: Work("make the volume", "volume_ready", frozenset({"volume_ready"})),
        Operation.CREATE_EMPTY_ARCHIVE: Work(
            "upload an empty archive", "archive_ready and archive_key set", frozenset({"volume_ready"})
        ),
        Operation.RESTORING: Work(
            "archive → volume",
            "volume_ready and home_ctx.restore_marker == archive_key",
            frozenset({"volume_ready", "archive_ready"}),
        ),
        Operation.STARTING: Work("start the instance", "container_ready", frozenset({"volume_ready"})),
        Operation.STOPPING: Work(
            "stop the instance, keep the volume",
            "container_ready is Stopped or NotFound",
            frozenset({"container_ready"}),
        ),
        Operation.ARCHIVING: Work(
            "delete the instance and see it gone; volume → archive; then delete the volume",
            "volume gone, archive_ready, archive_key set",
            frozenset({"volume_ready", "container_ready"}),
        ),
        Operation.DELETING: Work(
            "remove what is left of the instance; a volume goes only into a committed, verified archive",
            "no instance and no volume left; deleted_at is set",
            frozenset({"volume_ready", "container_ready"}),
        ),
    }
)

_BY_STATE: Mapping[tuple[Phase, DesiredState], Edge] = MappingProxyType(
    {(edge.level, desired): edge for edge in EDGES for desired in edge.desired}
)


def edge_from(level: Phase, desired: DesiredState) -> Edge | None:
    """The one edge out of this level towards this desired state; None when there is nothing to do."""
    return _BY_STATE.get((level, desired))
