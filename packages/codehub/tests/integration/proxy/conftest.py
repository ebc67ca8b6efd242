"""The conformance suite's subjects: a proxy of ours, and nginx for every expectation that it shares with us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.codehub.nginx import RunningNginx, differs, running_nginx
from testing.codehub.proxy import PREFIX, RunningProxy, wired
from testing.codehub.rawhttp import ScriptedUpstream, scripted_upstream


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "proxied" in metafunc.fixturenames:
        conformance = metafunc.module.__name__.rpartition(".")[2].startswith("test_conformance_")
        both = conformance and differs(metafunc.function.__name__) is None
        subjects = [pytest.param("nginx", marks=pytest.mark.needs("nginx"))] if both else []
        metafunc.parametrize("proxied", ["codehub", *subjects], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Single cases that nginx reads in another way are not asked of it."""
    items[:] = [item for item in items if not _is_for_us_alone(item)]


def _is_for_us_alone(item: pytest.Item) -> bool:
    chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if chosen.get("proxied") != "nginx" or "case" not in chosen:
        return False
    assert isinstance(item, pytest.Function)
    return differs(item.function.__name__, str(chosen["case"])) is not None


@pytest.fixture
def proxied(request: pytest.FixtureRequest) -> Iterator[tuple[RunningProxy | RunningNginx, ScriptedUpstream]]:
    """A subject before a scripted upstream, prefix stripped."""
    if request.param == "nginx":
        with scripted_upstream() as upstream, running_nginx(upstream.port, PREFIX) as nginx:
            yield nginx, upstream
    else:
        with wired() as pair:
            yield pair


@pytest.fixture
def proxy(proxied: tuple[RunningProxy, ScriptedUpstream]) -> RunningProxy:
    return proxied[0]


@pytest.fixture
def upstream(proxied: tuple[RunningProxy, ScriptedUpstream]) -> ScriptedUpstream:
    return proxied[1]
