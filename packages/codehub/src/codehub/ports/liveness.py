"""Queries a workspace for work in progress: its IDE (a profile's `activity_path`) and its helper, `workspaced`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from codehub.domain.busy import Work
from codehub.ports.instances import Upstream


class AsksActivity(Protocol):
    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        """Return the last reported work, or None if the answer reports none.

        Raises UpstreamUnavailable if there is no answer in time: nobody knows whether a program works.
        """
        ...
