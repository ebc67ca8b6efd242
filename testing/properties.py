"""Hypothesis profiles: no deadlines (machines are noisy), the same examples on every run, more of them in a soak test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("test", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("soak" if os.environ.get("CODEHUB_TEST_SOAK") == "1" else "test")
