"""A whole day of a workspace through the command, on a whole CodeHub; docs/a-day.md shows the same with code-server."""

from __future__ import annotations

from testing.codehub.full_stack import fresh_stack
from testing.docs.cli_day import Day, demonstrate, live


def test_a_day_of_a_workspace_and_the_demo() -> None:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.up()
        day = Day(stack)
        live(day, lambda workspace_id: f"hello from {workspace_id}")
        demonstrate(day)
