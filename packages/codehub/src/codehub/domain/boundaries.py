"""The boundaries of a workspace as `codehub doctor` tries them: the attempts, and what their results mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Means(StrEnum):
    """How an attempt is made. The values are the words of the probe's plan."""

    TCP = "tcp"
    UNIX = "unix"
    ABSTRACT = "abstract"  # a Unix socket without a file
    READ = "read"  # a file, or the names in a directory
    MEMORY = "memory"
    PROCESSES = "processes"
    USER_NAMESPACE = "user-namespace"


class Verdict(StrEnum):
    HELD = "held"
    NOT_HELD = "NOT HELD"
    NOT_TRIED = "could not be tried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`target` is an address, a path or a name; `amount` a port, bytes or a number of processes.

    `answers`: the target is known to answer somebody outside of the sandbox. Only then does silence mean that it was
    kept from the workspace; otherwise a rule must have refused the attempt.
    """

    means: Means
    target: str = ""
    amount: int = 0
    answers: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the probe saw. `succeeded` is None if it saw nothing that proves either."""

    succeeded: bool | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a workspace must not be able to do. Without attempts, `untried` says why there are none."""

    name: str
    attempts: tuple[Attempt, ...]
    fix: str
    untried: str = ""
    retry: str = ""  # what to do so that it can be tried


@dataclass(frozen=True, slots=True)
class Judgement:
    boundary: Boundary
    verdict: Verdict
    why: str = ""

    @property
    def fix(self) -> str:
        match self.verdict:
            case Verdict.HELD:
                return ""
            case Verdict.NOT_HELD:
                return self.boundary.fix
            case Verdict.NOT_TRIED:
                return self.boundary.retry


def judge(boundary: Boundary, outcomes: Mapping[Attempt, Outcome]) -> Judgement:
    """One success breaks a boundary. It held only if every attempt was made and failed."""
    seen = [outcomes.get(attempt, Outcome(None, "the probe ended before it")) for attempt in boundary.attempts]
    for outcome in seen:
        if outcome.succeeded:
            return Judgement(boundary, Verdict.NOT_HELD, outcome.message)
    if not seen:
        return Judgement(boundary, Verdict.NOT_TRIED, boundary.untried)
    for outcome in seen:
        if outcome.succeeded is None:
            return Judgement(boundary, Verdict.NOT_TRIED, outcome.message)
    return Judgement(boundary, Verdict.HELD)
