"""Fixtures of the browser tests."""

from collections.abc import Iterator

import pytest

from testing.codehub.dashboard import PASSWORD, dashboard, stage
from testing.codehub.full_stack import Stack, fresh_stack
from testing.ports import free_ports

__all__ = ["dashboard", "stage"]


@pytest.fixture(scope="package")
def real() -> Iterator[Stack]:
    """A whole CodeHub that is up, with an IDE that starts at once; all tests that ask for it share it."""
    with fresh_stack() as made:
        made.with_tiny_ide()
        api, proxy = free_ports(2)
        made.environment |= {
            "CODEHUB_ADMIN_PASSWORD": PASSWORD,
            # Its own, and the same after a restart, whoever else runs a CodeHub on this machine.
            "CODEHUB_API_BIND": f"127.0.0.1:{api}",
            "CODEHUB_PROXY_BIND": f"127.0.0.1:{proxy}",
            "LIMITS_MAX_RUNNING_PER_USER": "20",
            "LIMITS_MAX_RUNNING_GLOBAL": "20",
            "MAX_RETRY": "1",
        }
        made.up()
        yield made
