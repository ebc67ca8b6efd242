"""One contract suite per port, run against every implementation of it, the in-memory twins included.

A test module subclasses a suite as `Test…` and gives it a `world` fixture.
"""

import pytest

pytest.register_assert_rewrite(
    "testing.codehub.contracts.archives", "testing.codehub.contracts.homes", "testing.codehub.contracts.instances"
)
