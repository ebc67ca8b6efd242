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
    """Run each module's tests in turn in one worker: they share a CodeHub."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("xdist_group") is None:
            shared = "real" if "real" in getattr(item, "fixturenames", ()) else item.path.stem
            item.add_marker(pytest.mark.xdist_group(f"e2e-{shared}"))


@pytest.fixture(scope="package")
def real() -> Iterator[Stack]:
    """A whole CodeHub that is up, with an IDE that starts at once; all tests that ask for it share it."""
    with browser_stack(MAX_RETRY="1") as made:
        yield made
