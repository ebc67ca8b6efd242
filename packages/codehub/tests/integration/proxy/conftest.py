from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.proxy import RunningHub, wired
from testing.rawhttp import ScriptedUpstream


@pytest.fixture
def proxied() -> Iterator[tuple[RunningHub, ScriptedUpstream]]:
    """A hub before a scripted upstream, prefix stripped."""
    with wired() as pair:
        yield pair


@pytest.fixture
def hub(proxied: tuple[RunningHub, ScriptedUpstream]) -> RunningHub:
    return proxied[0]


@pytest.fixture
def upstream(proxied: tuple[RunningHub, ScriptedUpstream]) -> ScriptedUpstream:
    return proxied[1]
