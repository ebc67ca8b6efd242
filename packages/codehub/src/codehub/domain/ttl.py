"""When an idle workspace is put to sleep, and a sleeping one archived. The TTL Runner and the API both ask here.

Time in which activity could not be seen does not count: it is kept as a few gaps and taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from codehub.domain.model import DesiredState, Operation, Phase, Workspace

# Older spans are merged beyond this many; merging only ever makes idle time shorter.
_MOST_SPANS = 50


@dataclass(frozen=True, slots=True)
class Span:
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ActivityCoverage:
    """Until when activity was seen, and when it was not."""

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
    """After a tick that read the activity store.

    `unbroken`: the store kept what it was given since the last tick, and no look at it failed meanwhile. A gap longer than
    `longest_gap` had no leader or no store. Either way nothing that happened since `until` can be relied on to have been
    seen, nor what is still on its way for `lag`. Spans that ended before `keep` are dropped.
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


def gap_time(spans: Sequence[Span], since: datetime, now: datetime) -> timedelta:
    """How much of [since, now] was in a gap. Spans do not overlap: `extend_coverage` sees to that."""
    overlaps = (min(span.end, now) - max(span.begin, since) for span in spans)
    return sum((overlap for overlap in overlaps if overlap > timedelta()), timedelta())


def idle_since(workspace: Workspace) -> datetime:
    accessed = workspace.last_access_at
    return workspace.phase_changed_at if accessed is None else max(accessed, workspace.phase_changed_at)


def standby_ttl(workspace: Workspace, ttl: timedelta) -> timedelta:
    """Its template's, or the installation's."""
    own = workspace.template.ttl_standby if workspace.template is not None else None
    return ttl if own is None else own


def archive_ttl(workspace: Workspace, ttl: timedelta) -> timedelta:
    own = workspace.template.ttl_archive if workspace.template is not None else None
    return ttl if own is None else own


def sleeps_at(workspace: Workspace, ttl: timedelta, gaps: Sequence[Span]) -> datetime | None:
    """When it is put to sleep if nobody works in it until then: idle for the TTL, gaps not counted. `ttl` is the
    installation's, for workspaces whose template has none.

    None unless it is RUNNING, at rest and wanted RUNNING.
    """
    if not _rests_as(workspace, Phase.RUNNING, DesiredState.RUNNING):
        return None
    since = idle_since(workspace)
    at = since + standby_ttl(workspace, ttl)
    for span in gaps:  # in order and apart: `extend_coverage` sees to that
        if span.end > since and span.begin <= at:
            at += span.end - max(span.begin, since)
    # Kept awake by hand, whatever else is the case.
    return at if workspace.keep_awake_until is None else max(at, workspace.keep_awake_until)


def archives_at(workspace: Workspace, ttl: timedelta) -> datetime | None:
    """When it is archived if it stays asleep until then; None unless it is STANDBY, at rest and wanted STANDBY."""
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
