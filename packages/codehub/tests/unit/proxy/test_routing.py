"""The decision table of docs/proxy.md, row by row, and addresses."""

from __future__ import annotations

import pytest

from codehub.domain.model import DesiredState, Operation, Phase
from codehub.domain.routing import (
    Answer,
    Forward,
    Page,
    Route,
    SignIn,
    Wake,
    is_local_path,
    is_navigation,
    route,
    workspace_authority,
    workspace_url,
)

ID = "01890000-0000-7000-8000-000000000001"
R, S, A, D = DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED, DesiredState.DELETED
WAKING = Answer(503, Page.WAKING, 2)


@pytest.mark.parametrize(
    ("phase", "desired", "operation", "navigation", "other", "token"),
    [
        (Phase.RUNNING, R, Operation.NONE, Forward(), Forward(), Forward()),
        (Phase.RUNNING, S, Operation.NONE, *[Forward(t, leaving=True) for t in (True, False, True)]),
        (Phase.RUNNING, S, Operation.STOPPING, Wake(), Forward(rising=True), Wake()),
        (Phase.STANDBY, S, Operation.NONE, Wake(), WAKING, Wake()),
        (Phase.STANDBY, A, Operation.ARCHIVING, Wake(), WAKING, Wake()),
        (Phase.STANDBY, R, Operation.STARTING, WAKING, Forward(rising=True), Forward(rising=True)),
        (Phase.ARCHIVED, R, Operation.RESTORING, WAKING, Forward(rising=True), Forward(rising=True)),
        (Phase.ARCHIVED, A, Operation.NONE, *[Answer(502, Page.ARCHIVED)] * 3),
        (Phase.PENDING, A, Operation.NONE, *[Answer(502, Page.PENDING)] * 3),
        (Phase.ERROR, R, Operation.NONE, *[Answer(502, Page.ERROR)] * 3),
        (Phase.DELETING, D, Operation.DELETING, *[Answer(404, Page.NOT_FOUND)] * 3),
        (Phase.RUNNING, D, Operation.NONE, *[Answer(404, Page.NOT_FOUND)] * 3),
        (None, None, Operation.NONE, *[Answer(404, Page.NOT_FOUND)] * 3),
    ],
)
def test_the_table(
    phase: Phase | None,
    desired: DesiredState | None,
    operation: Operation,
    navigation: Route,
    other: Route,
    token: Route,
) -> None:
    def way(
        *, signed_in: bool = True, is_owner: bool = True, navigates: bool = False, with_token: bool = False
    ) -> Route:
        return route(
            signed_in=signed_in,
            is_owner=is_owner,
            phase=phase,
            desired=desired,
            operation=operation,
            navigation=navigates,
            with_token=with_token,
        )

    assert way(navigates=True) == navigation
    assert way() == other
    assert way(with_token=True) == token
    assert way(signed_in=False) == SignIn()
    gone = navigation == Answer(404, Page.NOT_FOUND)
    assert way(is_owner=False) == (navigation if gone else Answer(403, Page.FORBIDDEN))


@pytest.mark.parametrize(
    ("method", "mode", "dest", "purpose", "accept", "expected"),
    [
        ("GET", "navigate", "document", "", "*/*", True),
        ("GET", "navigate", "iframe", "", "text/html", False),
        ("GET", "cors", "empty", "", "text/html", False),
        ("GET", "navigate", "document", "prefetch", "text/html", False),
        ("POST", "navigate", "document", "", "text/html", False),
        ("GET", "", "", "", "text/html,*/*", True),
        ("GET", "", "", "", "*/*", False),
    ],
)
def test_a_navigation_is_a_person_opening_a_page(
    method: str, mode: str, dest: str, purpose: str, accept: str, expected: bool
) -> None:
    assert is_navigation(method, fetch_mode=mode, fetch_dest=dest, purpose=purpose, accept=accept) is expected


def test_addresses() -> None:
    assert workspace_url("http://localhost:8001", "", ID) == f"http://localhost:8001/w/{ID}/"
    assert workspace_url("http://localhost:8001", "*.localhost", ID) == f"http://{ID}.localhost:8001/w/{ID}/"
    assert workspace_authority("https://ws.example.org", "*.ws.example.org", ID) == f"{ID}.ws.example.org"


@pytest.mark.parametrize(
    "path",
    [
        "/w/other/",
        "//evil",
        f"/w/{ID}/../../x",
        f"/w/{ID}/.%2E/x",
        f"/w/{ID}/%2e%2e",
        f"/w/{ID}/\\x",
        f"/w/{ID}/\r\nX",
        "",
    ],
)
def test_a_return_address_outside_the_workspace_is_not_local(path: str) -> None:
    assert not is_local_path(path, ID)
    assert is_local_path(f"/w/{ID}/a?b=/../c", ID)
