"""One contract suite per port, run against every implementation of it, including the in-memory twins.

A test module subclasses a suite as `Test…` and provides a `world` fixture.
"""

import pytest

pytest.register_assert_rewrite(
    "testing.codehub.contracts.archives", "testing.codehub.contracts.homes", "testing.codehub.contracts.instances"
)
