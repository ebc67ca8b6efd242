"""What a user gets who needs a backend that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from codehub.domain.errors import BackendDown, UpstreamUnavailable
from codehub.domain.model import Blocked, ErrorReason
from codehub.services import backend_answers
from codehub.services.backend_answers import answered
from testing.codehub.workspaces import workspace as workspace_row

SINCE = datetime(2026, 11, 17, 19, 50, tzinfo=UTC)
CARD = "local-docker does not answer since 2026-11-17 19:50 UTC: no answer in time"


async def hang() -> None:
    await asyncio.Event().wait()


async def refuse() -> None:
    raise BackendDown("connection refused")


@pytest.mark.parametrize("backend", [hang, refuse])
@pytest.mark.parametrize(
    ("blocked", "words"),
    [
        (None, "local-docker does not answer: try again later"),
        (Blocked(ErrorReason.UNREACHABLE, CARD, SINCE), f"{CARD}: try again later"),
        (
            Blocked(ErrorReason.OUT_OF_SPACE, "the disk is full", SINCE),
            "local-docker does not answer: try again later",
        ),
    ],
)
async def test_the_error_names_the_backend_in_the_words_of_the_card(
    monkeypatch: pytest.MonkeyPatch, backend: Callable[[], Awaitable[None]], blocked: Blocked | None, words: str
) -> None:
    monkeypatch.setattr(backend_answers, "ANSWERS_WITHIN_S", 0.01)
    workspace = replace(workspace_row(), instance_backend="local-docker", blocked=blocked)
    with pytest.raises(UpstreamUnavailable) as raised:
        await answered(workspace, backend())
    assert str(raised.value) == words
