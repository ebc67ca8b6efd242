"""Fixtures of the browser tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stacks import browser_stack
from testing.codehub.dashboard import dashboard, stage
from testing.codehub.full_stack import Stack

__all__ = ["dashboard", "stage"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run them in turn in one worker: many share a CodeHub, and a browser with an IDE takes a core."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def real() -> Iterator[Stack]:
    """A whole CodeHub that is up, with an IDE that starts at once; all tests that ask for it share it."""
    with browser_stack(MAX_RETRY="1") as made:
        yield made
