"""Fixtures of the browser tests."""

from collections.abc import Iterator

import pytest

from e2e.stacks import browser_stack
from testing.codehub.dashboard import dashboard, stage
from testing.codehub.full_stack import Stack

__all__ = ["dashboard", "stage"]


@pytest.fixture(scope="package")
def real() -> Iterator[Stack]:
    """A whole CodeHub that is up, with an IDE that starts at once; all tests that ask for it share it."""
    with browser_stack(MAX_RETRY="1") as made:
        yield made
