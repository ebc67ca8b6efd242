"""Asking a workspace itself whether it is at work: its IDE (a profile's `activity_path`) and its helper, `workspaced`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from codehub.domain.busy import Work
from codehub.ports.instances import Upstream


class AsksActivity(Protocol):
    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        """The last work, as it says; None when it says nothing, or does not answer in time."""
        ...
