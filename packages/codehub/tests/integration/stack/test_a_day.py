"""A whole day of a workspace through the command, on a whole CodeHub; docs/a-day.md shows the same with code-server."""

from __future__ import annotations

from testing.cli_day import Day, demonstrate, live
from testing.whole import fresh_stack


def test_a_day_of_a_workspace_and_the_demo() -> None:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.up()
        day = Day(stack)
        live(day, lambda workspace_id: f"hello from {workspace_id}")
        demonstrate(day)
        transcript = "\n".join(day.seen)
    # Where nothing can be drawn over, lines say how far it is.
    for line in ("api: archiving, ", "api: restoring, "):
        assert line in transcript, transcript
