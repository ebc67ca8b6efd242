"""Features of devcontainer.json in a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from codehub.domain.dev_features import File
from codehub.domain.images import ImageRef


@dataclass(frozen=True, slots=True)
class FetchedFeature:
    """`digest` is the manifest's: what a lock file pins."""

    digest: str
    files: Mapping[str, File]


class FeatureSource(Protocol):
    async def fetch(self, ref: ImageRef) -> FetchedFeature:
        """Return a feature's files, which are untrusted. Raises CodeHubError with the reason why it cannot be had."""
        ...
