"""A workspace's setup as shown to users: its steps, their progress, and the text on the card. Pure.

The data is reported from inside the workspace: it is bounded here and never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from codehub.domain.devcontainer_ports import parse_port

_MOST_STEPS = 200
_MOST_NOTES = 50
_LONGEST_TEXT = 1000
_MOST_KEYS_NAMED = 5
_LONGEST_LABEL = 100
_INCOMPLETE = "incomplete"
_IMAGE = "image-"  # how the id of such a step begins
_LATEST = 4e9  # as seconds since 1970, in 2096


class StepState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class SetupStep:
    id: str
    title: str
    state: StepState
    once: bool = True
    message: str = ""
    # The kind of failure: auth, missing, host, timeout, tls, ref, space, …; or `incomplete` if not all could be fetched.
    kind: str = ""
    percent: int | None = None
    doing: str = ""  # "Receiving objects"
    notes: tuple[str, ...] = ()
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    stops_at: float | None = None  # when it is stopped if it still runs

    @property
    def may_skip(self) -> bool:
        """Return whether its owner may stop it. An image is built outside the workspace."""
        return self.state is StepState.RUNNING and not self.id.startswith(_IMAGE)


@dataclass(frozen=True, slots=True)
class SetupState:
    steps: tuple[SetupStep, ...] = ()
    folder: str = ""  # the folder the IDE opens, relative to the home; empty until it exists
    home: str = ""
    ports: tuple[int, ...] = ()
    port_labels: tuple[tuple[int, str], ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    error: str = ""
    running: bool = False

    @property
    def failed(self) -> tuple[SetupStep, ...]:
        return tuple(step for step in self.steps if step.state is StepState.FAILED)

    @property
    def incomplete(self) -> tuple[SetupStep, ...]:
        return tuple(step for step in self.steps if step.state is StepState.DONE and step.kind == _INCOMPLETE)


def parse_setup(raw: object) -> SetupState:
    """Parse a report of `workspaced`, or its stored form. Malformed parts are omitted."""
    if not isinstance(raw, Mapping):
        return SetupState()
    steps = [_step(item) for item in _items(raw.get("steps"))[:_MOST_STEPS] if isinstance(item, Mapping)]
    ports = [p for p in _items(raw.get("ports")) if isinstance(p, int) and not isinstance(p, bool) and 0 < p < 65_536]
    pairs = [item for item in _items(raw.get("ignored"))[:_MOST_NOTES] if isinstance(item, list) and len(item) == 2]
    return SetupState(
        steps=tuple(steps),
        folder=_text(raw.get("folder")),
        home=_text(raw.get("home")),
        ports=tuple(ports[:_MOST_NOTES]),
        port_labels=_labels(raw.get("port_labels")),
        ignored=tuple((_text(key), _text(reason)) for key, reason in pairs),
        error=_text(raw.get("error")),
        running=raw.get("running") is True,
    )


def setup_column(state: SetupState) -> dict[str, object]:
    return {
        "steps": [_step_column(step) for step in state.steps],
        "folder": state.folder,
        "home": state.home,
        "ports": list(state.ports),
        "port_labels": {str(port): label for port, label in state.port_labels},
        "ignored": [list(pair) for pair in state.ignored],
        "error": state.error,
        "running": state.running,
    }


def _labels(raw: object) -> tuple[tuple[int, str], ...]:
    pairs = list(raw.items())[:_MOST_NOTES] if isinstance(raw, Mapping) else []
    found = {parse_port(port): " ".join(_text(label).split())[:_LONGEST_LABEL] for port, label in pairs}
    return tuple((port, label) for port, label in found.items() if port is not None and label)


def _step_column(step: SetupStep) -> dict[str, object]:
    return {
        "id": step.id,
        "title": step.title,
        "state": step.state.value,
        "once": step.once,
        "message": step.message,
        "kind": step.kind,
        "progress": {"percent": step.percent, "step": step.doing},
        "notes": list(step.notes),
        "exit_code": step.exit_code,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "stops_at": step.stops_at,
    }


def _step(raw: Mapping[str, object]) -> SetupStep:
    state = raw.get("state")
    progress = raw.get("progress")
    how_far = progress if isinstance(progress, Mapping) else {}
    percent = _number(how_far.get("percent"))
    code = _number(raw.get("exit_code"))
    return SetupStep(
        id=_text(raw.get("id"))[:100],
        title=_text(raw.get("title"))[:200],
        state=StepState(state) if isinstance(state, str) and state in list(StepState) else StepState.PENDING,
        once=raw.get("once") is not False,
        message=_text(raw.get("message")),
        kind=_text(raw.get("kind"))[:20],
        percent=None if percent is None else max(0, min(100, int(percent))),
        doing=_text(how_far.get("step"))[:100],
        notes=tuple(_text(note) for note in _items(raw.get("notes"))[:_MOST_NOTES]),
        exit_code=None if code is None else int(code),
        started_at=_moment(raw.get("started_at")),
        ended_at=_moment(raw.get("ended_at")),
        stops_at=_moment(raw.get("stops_at")),
    )


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if usable and isinstance(value, int | float) else None


def _moment(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number < _LATEST else None


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(char for char in text[:_LONGEST_TEXT] if char.isprintable() or char == "\n")


def retry_label(state: SetupState) -> str:
    """Return the text of the button that repeats failed steps or applies an image that waits; empty if there is none."""
    if state.failed or state.error or state.incomplete:
        return "Try again"
    waits = any(step.state is StepState.SKIPPED and step.id.startswith(_IMAGE) for step in state.steps)
    return "Apply the image" if waits and not state.running else ""


def may_change_repository(state: SetupState | None) -> bool:
    """Return whether another repository may be cloned instead: only one that could not be cloned is replaced."""
    return state is not None and any(step.id == "clone" for step in state.failed)


def expected_ports(of_template: Sequence[int], state: SetupState | None) -> tuple[int, ...]:
    """Return the ports that the template and devcontainer.json name, in their order."""
    return tuple(dict.fromkeys((*of_template, *(state.ports if state is not None else ()))))


def setup_sentence(state: SetupState) -> str:
    """Return one line for the card; empty if there is nothing to report."""
    running = [step for step in state.steps if step.state is StepState.RUNNING]
    if running:
        step = running[0]
        percent = f", {step.percent} %" if step.percent is not None else ""
        far = f": {step.doing[:1].lower()}{step.doing[1:]}{percent}" if step.doing else ""
        return f"{step.title}{far}"
    if state.failed:
        step = state.failed[0]
        return f"{step.title} failed. {step.message}".strip()
    waiting = [step for step in state.steps if step.state is StepState.SKIPPED and step.id.startswith(_IMAGE)]
    if waiting and not state.error:
        return f"{waiting[0].title}: {waiting[0].message}"
    if state.error:
        return state.error
    if state.incomplete:
        return " ".join(state.incomplete[0].notes[:1])
    if not state.ignored:
        return ""
    keys = [key[:50] for key, _ in state.ignored]
    more = f" and {len(keys) - _MOST_KEYS_NAMED} more" if len(keys) > _MOST_KEYS_NAMED else ""
    verb = "has" if len(keys) == 1 else "have"
    return f"Of devcontainer.json, {', '.join(keys[:_MOST_KEYS_NAMED])}{more} {verb} no effect here."
