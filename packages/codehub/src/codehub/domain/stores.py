"""Whether a store of homes or archives is the one this installation keeps its data in.

Each store carries an id, and the database remembers it with the place. A coordinator that sees another store must not
lead: everything would look lost to it. A store that is simply not there is down, and nothing in it is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """What the database says: the store's id, and where it was last seen."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class Use:
    """The right one. `record`: its id or its place is not yet what the database says."""

    id: str
    record: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """New, or of a version that gave no ids: give it one."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Not there, or not known to be the right one: down until it is."""

    message: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another store: do not lead."""

    message: str


Verdict: TypeAlias = Use | Claim | Absent | Foreign


def judge_store(
    kind: str, place: str, seen: str | None, recorded: StoreRecord | None, *, has_data: bool, proven: bool
) -> Verdict:
    """`seen` is the id in the store. `has_data`: rows say that there is something in it; `proven`: some of it was found."""
    if recorded is not None:
        return _known(kind, place, seen, recorded)
    if has_data and not proven:
        return Absent(f"none of the {kind} of this installation is at {place}: is its disk mounted?")
    return Claim() if seen is None else Use(seen, record=True)


def _known(kind: str, place: str, seen: str | None, recorded: StoreRecord) -> Verdict:
    if seen == recorded.id:
        return Use(seen, record=place != recorded.place)
    if seen is None and place == recorded.place:
        return Absent(f"the {kind} are not at {place} now: is its disk mounted?")
    return Foreign(
        f"the {kind} of this installation are at {recorded.place}, and {place} is another place: "
        "give this coordinator the settings of the others (CODEHUB_HOMES_DIR, CODEHUB_ARCHIVE_URL)"
    )


def too_many_losses(lost: int, total: int, most: int) -> bool:
    """Whether so many homes seem lost at once that a mistake is likelier: more than `most` and more than a tenth."""
    return lost > most and lost * 10 > total
