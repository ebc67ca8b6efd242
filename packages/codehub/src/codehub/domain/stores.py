"""Decides whether a store of homes or archives is the one this installation keeps its data in.

Each store carries an id, which the database records with the store's location. A coordinator that sees another store must
not lead: all data would appear to be lost. A missing store is down, and nothing in it is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """The recorded store id and the location where it was last seen."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class Use:
    """The right store. `record`: its id or location differs from the database and must be recorded."""

    id: str
    record: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A new store, or one of a version that assigned no ids: assign one."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Missing, or not known to be the right store: treated as down."""

    message: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another store: do not lead."""

    message: str


Verdict: TypeAlias = Use | Claim | Absent | Foreign


def judge_store(
    kind: str, place: str, seen: str | None, recorded: StoreRecord | None, *, has_data: bool, proven: bool
) -> Verdict:
    """`seen` is the id in the store. `has_data`: rows refer to data in it; `proven`: some of that data was found."""
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
    """Return whether so many homes appear lost that an error is likelier: more than `most` and more than a tenth."""
    return lost > most and lost * 10 > total
