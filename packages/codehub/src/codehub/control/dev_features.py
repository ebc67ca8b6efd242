"""Collects the features of an image: those of devcontainer.json and those that they depend on, in order of installation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from codehub.domain.dev_features import MOST_FEATURES, Feature, in_order, read_feature
from codehub.domain.dev_image import Features
from codehub.domain.errors import Invalid
from codehub.domain.feature_refs import FeatureRules, is_local, pinned
from codehub.ports.feature_source import FeatureSource, FetchedFeature


async def collect_features(
    requested: Features, rules: FeatureRules, source: FeatureSource, tell: Callable[[str], None]
) -> list[Feature]:
    """Raises CodeHubError if one cannot be had or is not allowed, also one that another depends on."""
    collecting = _Collecting(requested, rules, source, tell)
    for key, given in requested.wanted.items():
        await collecting.add(key, given, ())
    return in_order(list(collecting.found.values()), requested.first)


class _Collecting:
    def __init__(
        self, requested: Features, rules: FeatureRules, source: FeatureSource, tell: Callable[[str], None]
    ) -> None:
        self._requested = requested
        self._rules = rules
        self._source = source
        self._tell = tell
        self._fetched: dict[str, FetchedFeature] = {}
        self.found: dict[str, Feature] = {}  # by identity

    async def add(self, key: str, given: object, above: tuple[str, ...]) -> str:
        """Add a feature after those that it depends on. Returns its identity."""
        feature = await self._read(key, given)
        # Reading takes milliseconds, and features that depend on each other are read 400 times.
        await asyncio.sleep(0)
        identity = feature.identity
        if identity in above:
            raise Invalid(f"the feature {key} depends on itself")
        if identity in self.found:
            return identity
        if len(self.found) + len(above) >= MOST_FEATURES:
            raise Invalid(f"has more than {MOST_FEATURES} features, with those that they depend on")
        needs = [await self.add(each, options, (*above, identity)) for each, options in feature.depends_on.items()]
        self.found[identity] = replace(feature, needs=frozenset(needs))
        return identity

    async def _read(self, key: str, given: object) -> Feature:
        if is_local(key):
            if key not in self._requested.local:
                raise Invalid(f"a feature depends on {key}: add it to the features of devcontainer.json")
            return read_feature(key, given, self._requested.local[key])
        ref = pinned(key, self._requested.locked)
        self._rules.check(ref)
        if key not in self._fetched:
            self._tell(f"Fetch the feature {ref}")
            self._fetched[key] = await self._source.fetch(ref)
        fetched = self._fetched[key]
        return read_feature(key, given, fetched.files, f"{ref.name}@{fetched.digest}")
