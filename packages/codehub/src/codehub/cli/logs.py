"""Logging of all processes: constant messages with fields, to stderr, as text or as JSON lines."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from codehub.cli.output import printable

# Fields with these names are never logged, whatever their source.
_SECRET_KEYS = frozenset({"password", "token", "secret", "ticket", "authorization", "cookie", "session"})


def configure(level: str, form: str) -> None:
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if as_text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_secrets,
            structlog.processors.format_exc_info,
            *([_on_one_line] if as_text else []),  # JSON escapes them
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries use the standard library's logging; only their warnings and errors matter.
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s")


def _without_secrets(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if key.lower() in _SECRET_KEYS:
            event[key] = "…"
    return event


def _on_one_line(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Spell out control characters: a workspace chooses some of the texts, and must not forge lines or use the terminal."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value if key == "exception" else value.replace("\n", "\\n"))
    return event
