"""Notifications that the database sends when a row changes. Hints: all of them may be lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NoticeKind(StrEnum):
    SHOWN = "ws_sse"
    WAKE = "ws_wake"
    DELETED = "ws_deleted"
    USER_SETUP = "user_setup"  # what a user brings into all their workspaces; names no workspace


@dataclass(frozen=True, slots=True)
class Notice:
    kind: NoticeKind
    workspace_id: str
    owner_user_id: str = ""


class Notifications(Protocol):
    def listen(self) -> AsyncIterator[Notice | None]:
        """Yield notices; None once it listens, and periodically if there are no notices.

        Raises BackendDown if the connection breaks; the caller listens again.
        """
        ...
