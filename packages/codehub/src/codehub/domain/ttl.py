"""Decides when an idle workspace is put to sleep and a sleeping one archived. Used by the TTL runner and the API.

Time in which activity could not be observed does not count: it is stored as a few gaps and subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.domain.templates import SHORTEST_TTL

# Beyond this number, older spans are merged. Merging only ever makes idle time shorter.
_MOST_SPANS = 50
# On an overloaded machine a tick comes this late. With a short interval, each tick would otherwise seem to end a gap, no
# time would count as idle, and no workspace would ever be put to sleep.
_LATE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Span:
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ActivityCoverage:
    """The time until which activity was observed, and the gaps in between."""

    until: datetime | None = None
    gaps: tuple[Span, ...] = ()


def extend_coverage(
    coverage: ActivityCoverage,
    now: datetime,
    *,
    unbroken: bool,
    longest_gap: timedelta,
    lag: timedelta,
    keep: timedelta,
) -> ActivityCoverage:
    """Extend the coverage after a tick that read the activity store.

    `unbroken`: the store kept all its data since the last tick, and no read failed in between. During a gap longer than
    `longest_gap` there was no leader or no store. In either case, activity since `until` may have been missed, and so may
    activity that is still in transit for `lag`. Spans that ended before `keep` are dropped.
    """
    spans = [span for span in coverage.gaps if span.end > now - keep]
    if coverage.until is None or not unbroken or now - coverage.until > longest_gap:
        gap = Span(coverage.until if coverage.until is not None else now, now + lag)
        if spans and spans[-1].end >= gap.begin:
            last = spans.pop()
            gap = Span(min(last.begin, gap.begin), max(last.end, gap.end))
        spans.append(gap)
    while len(spans) > _MOST_SPANS:
        spans[:2] = [Span(spans[0].begin, spans[1].end)]
    return ActivityCoverage(now, tuple(spans))


def longest_gap(interval: timedelta, lag: timedelta, last_tick: timedelta) -> timedelta:
    """Return how far apart two reads of the activity store by one leader may be without a gap.

    The store keeps activity until it is read, so a late read misses nothing; a machine that was suspended does. The last
    tick's own duration is no gap either: it may have waited for workspaces that do not answer.
    """
    return max(2 * interval + lag, _LATE) + last_tick


def gap_time(spans: Sequence[Span], since: datetime, now: datetime) -> timedelta:
    """Return how much of [since, now] was in gaps. `extend_coverage` ensures that spans do not overlap."""
    overlaps = (min(span.end, now) - max(span.begin, since) for span in spans)
    return sum((overlap for overlap in overlaps if overlap > timedelta()), timedelta())


def idle_since(workspace: Workspace) -> datetime:
    accessed = workspace.last_access_at
    return workspace.phase_changed_at if accessed is None else max(accessed, workspace.phase_changed_at)


def standby_ttl(workspace: Workspace, ttl: timedelta) -> timedelta:
    """Return the template's TTL, or else the installation's."""
    own = workspace.template.ttl_standby if workspace.template is not None else None
    return ttl if own is None else own


def shortest_standby_ttl(ttl: timedelta) -> timedelta:
    """Return the shortest TTL that any workspace may have. `ttl` is the installation's."""
    return min(ttl, SHORTEST_TTL)


def archive_ttl(workspace: Workspace, ttl: timedelta) -> timedelta:
    own = workspace.template.ttl_archive if workspace.template is not None else None
    return ttl if own is None else own


def sleeps_at(workspace: Workspace, ttl: timedelta, gaps: Sequence[Span]) -> datetime | None:
    """Return when the workspace is put to sleep if it stays unused: idle for the TTL, not counting gaps.

    `ttl` is the installation's, for workspaces whose template has none. None unless the workspace is RUNNING, at rest and
    its desired state is RUNNING.
    """
    if not _rests_as(workspace, Phase.RUNNING, DesiredState.RUNNING):
        return None
    since = idle_since(workspace)
    at = since + standby_ttl(workspace, ttl)
    for span in gaps:  # in order and disjoint: `extend_coverage` ensures that
        if span.end > since and span.begin <= at:
            at += span.end - max(span.begin, since)
    # A manual keep-awake takes precedence.
    return at if workspace.keep_awake_until is None else max(at, workspace.keep_awake_until)


def archives_at(workspace: Workspace, ttl: timedelta) -> datetime | None:
    """Return when it is archived if it stays asleep. None unless it is STANDBY, at rest and desired STANDBY."""
    if not _rests_as(workspace, Phase.STANDBY, DesiredState.STANDBY):
        return None
    return workspace.phase_changed_at + archive_ttl(workspace, ttl)


def is_to_sleep(workspace: Workspace, now: datetime, ttl: timedelta, gaps: Sequence[Span]) -> bool:
    at = sleeps_at(workspace, ttl, gaps)
    return at is not None and now > at


def is_to_archive(workspace: Workspace, now: datetime, ttl: timedelta) -> bool:
    at = archives_at(workspace, ttl)
    return at is not None and now > at


def _rests_as(workspace: Workspace, phase: Phase, desired: DesiredState) -> bool:
    return (
        workspace.deleted_at is None
        and not workspace.of_newer_version
        and workspace.phase is phase
        and workspace.operation is Operation.NONE
        and workspace.desired_state is desired
    )
