"""What every request of the API asks for first."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from codehub.api.context import Address, Ctx, Who


@pytest.mark.parametrize("dependency", [Ctx, Who, Address])
def test_no_request_waits_for_a_thread_before_it_begins(dependency: object) -> None:
    """FastAPI runs dependencies that are no coroutines in threads: a quarter of a request's CPU time."""
    _, depends = get_args(dependency)
    assert inspect.iscoroutinefunction(depends.dependency)
