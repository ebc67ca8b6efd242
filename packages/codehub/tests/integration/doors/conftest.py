"""One running CodeHub for all tests in this folder: each leaves the workspace running, or wakes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.codehub.doors import Doors, open_doors
from testing.codehub.full_stack import fresh_stack


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.up()
        yield open_doors(stack)
