"""Asking an IDE itself whether someone works in it (a profile's `activity_path`, docs/profiles.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from codehub.ports.instances import Upstream


class AsksActivity(Protocol):
    async def last_active(self, upstream: Upstream, path: str, now: datetime) -> datetime | None:
        """When there was activity last, as the IDE says; None when it says nothing, or does not answer in time."""
        ...
