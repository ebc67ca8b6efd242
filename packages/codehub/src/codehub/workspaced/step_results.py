"""How a setup step ended, as recorded and shown, and how far one is that still runs."""

from __future__ import annotations

import json
import os
import signal
import time

from .clone import NO_SPACE
from .dotfiles import RUNNING
from .git_errors import explain, last_progress
from .processes import Process
from .setup_plan import Step

_TERMINATED = 128 + signal.SIGTERM


def skipped(step: Step) -> dict[str, object]:
    """Return how a step ends that a user stopped. A clone counts as failed, so that another repository can be named."""
    if step.kind == "clone":
        return {"state": "failed", "kind": "stopped", "message": "It was stopped on request."}
    return {"state": "skipped", "kind": "stopped", "message": "It was stopped on request. `retry-setup` repeats it."}


def overdue(limit_s: float) -> dict[str, object]:
    within = f"{limit_s / 60:g} min" if limit_s >= 60 else f"{limit_s:g} s"
    message = f"It did not end within {within} and was stopped. Its output says how far it came."
    return {"state": "failed", "kind": "timeout", "message": message}


def result_of(
    step: Step, entry: dict[str, object], code: int | None, file: str, stopped: dict[str, object] | None
) -> dict[str, object]:
    """Return the record of a step that ended. `stopped` is why it was stopped; `file` is what a clone wrote."""
    base = {"started_at": entry.get("started_at"), "ended_at": time.time(), "exit_code": code}
    result: dict[str, object] = {**read_json(file)} if step.kind != "command" else {}
    if result.get("state") in ("done", "failed"):
        kept: tuple[str, ...] = ("state", "kind", "message", "notes")
        return {**base, **{name: result[name] for name in kept if name in result}}
    if step.kind == "command" and code == 0:
        return {**base, "state": "done"}
    if stopped is not None:
        return {**base, **stopped}
    if step.kind != "command":
        if code == NO_SPACE:
            full = explain("No space left on device", "", "")
            return {**base, "state": "failed", "kind": full.kind, "message": full.message}
        return {**base, "state": "failed", "message": "It was interrupted. Try again.", "interrupted": True}
    if code in (None, _TERMINATED):
        return {**base, "state": "failed", "message": "The command was interrupted.", "interrupted": True}
    return {**base, "state": "failed", "message": f"The command ended with exit code {code}. Its output says why."}


def progress_of(process: Process) -> dict[str, object]:
    path = process.log_path("stdout")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            text = file.read().decode(errors="replace")
    except OSError:
        return {}
    _, marker, after = text.rpartition(f"\n{RUNNING} ")
    if marker:  # the clone is over
        return {"step": f"{RUNNING} {after.partition(chr(10))[0]}", "percent": None, "received": 0}
    found = last_progress(text)
    return {} if found is None else {"step": found.step, "percent": found.percent, "received": found.received}


def read_json(path: str) -> dict[str, dict[str, object]]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
