"""Fixtures of the browser tests."""

from testing.dashboard import dashboard, stage

__all__ = ["dashboard", "stage"]
