"""Generates docs/states.md from the tables, so that the page matches the code: `python -m codehub.domain.drawing`."""

from __future__ import annotations

from codehub.domain.judge import LEVELS
from codehub.domain.model import DesiredState, Operation, Phase
from codehub.domain.observed import VOLUME_MAY_BE_AWAY
from codehub.domain.transitions import EDGES, WORK, edge_from

_HEAD = """# States

Drawn from the tables in `codehub/domain/transitions.py` by `python -m codehub.domain.drawing`; a test keeps it fresh.

A workspace has a **level**, judged from what was observed, and a **desired state**. Where an edge leads from the level
towards the desired state, its operation is begun; one at a time. Only its owner's explicit request cancels one (the last
column below); another desired state alone waits until it is done. Where no edge leads on, it has converged.
"""


def states_page() -> str:
    return "\n".join([_HEAD, *_picture(), *_levels(), *_edges(), *_operations(), *_matrix()]) + "\n"


def _picture() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> PENDING"]
    for edge in EDGES:
        only_if = f" if {edge.only_if.text}" if edge.only_if else ""
        lines.append(f"    {edge.level} --> {edge.reaches}: {edge.operation}{only_if}")
    return [*lines, "    DELETED --> [*]", "```", ""]


def _levels() -> list[str]:
    heights = ", ".join(f"{phase} ({height})" for phase, height in LEVELS.items())
    away = ", ".join(sorted(operation.value for operation in VOLUME_MAY_BE_AWAY))
    return [
        f"Levels, from low to high: {heights}. ERROR is beside them; without an action, deletion is the only way out.",
        f"A recorded volume may be away only during {away}; at any other time its absence is DataLost.",
        "",
    ]


def _edges() -> list[str]:
    lines = ["| level | desired | only if | operation | reaches |", "|---|---|---|---|---|"]
    for edge in EDGES:
        desired = ", ".join(state.value for state in DesiredState if state in edge.desired)
        only_if = edge.only_if.text if edge.only_if else ""
        lines.append(f"| {edge.level} | {desired} | {only_if} | {edge.operation} | {edge.reaches} |")
    return [*lines, "", "The first edge whose condition holds is taken.", ""]


def _operations() -> list[str]:
    lines = ["| operation | what it does | done when | when cancelled |", "|---|---|---|---|"]
    for operation, work in WORK.items():
        done = " and ".join(requirement.text for requirement in work.done_when)
        instead = f"desired becomes {work.cancelled_for}" if work.cancelled_for else "cannot be"
        lines.append(f"| {operation} | {work.does} | {done} | {instead} |")
    return [*lines, "", "ARCHIVING cannot be cancelled once its archive_key is committed.", ""]


def _matrix() -> list[str]:
    wanted = list(DesiredState)
    lines = [
        "The next operation, by level and desired state:",
        "",
        "| level | " + " | ".join(state.value for state in wanted) + " |",
        "|---" * (len(wanted) + 1) + "|",
    ]
    for level in (*LEVELS, Phase.ERROR):
        steps = [edge.operation if (edge := edge_from(level, state)) else Operation.NONE for state in wanted]
        lines.append(
            f"| {level} | " + " | ".join("—" if step is Operation.NONE else step.value for step in steps) + " |"
        )
    return lines


if __name__ == "__main__":
    print(states_page(), end="")
