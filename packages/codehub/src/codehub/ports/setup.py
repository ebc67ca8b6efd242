"""What the coordinator needs to set up running workspaces: which to link, what to send, and what they request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from codehub.domain.setup import SetupState
from codehub.ports.instances import Upstream

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Linkable:
    """A running or starting workspace. `version` differs after any change of what it is sent."""

    workspace_id: str
    instance_backend: str
    owner_user_id: str
    version: tuple[int, int]


class SetupDesk(Protocol):
    """Provides everything for a link. Secrets are decrypted here, only for their owner's workspaces."""

    async def linkable(self) -> Sequence[Linkable]: ...

    async def bind(self, epoch: int, workspace_id: str, instance: str, owner_user_id: str) -> bool:
        """Return whether this instance may have this owner's secrets. False if it was started under another owner.

        Raises Deposed if another coordinator leads: what this one knows of the instance may be old.
        """
        ...

    async def message(self, workspace_id: str, owner_user_id: str) -> Message | None:
        """Return the message for the workspace, or None if it no longer exists."""
        ...

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> Message:
        """Answer a workspace's request. Raises CodeHubError with the message to send."""
        ...

    async def note(self, epoch: int, workspace_id: str, state: SetupState) -> None:
        """Record how far the setup is. Raises Deposed if another coordinator leads."""
        ...

    async def awaits_environment(self, owner_user_id: str) -> bool:
        """Return whether the owner has secrets for the environment, which an IDE must wait for."""
        ...


class LinkStream(Protocol):
    async def send(self, message: Message) -> None: ...

    def messages(self) -> AsyncIterator[Message]:
        """Yield messages until the workspace disconnects. Malformed lines are skipped; an endless line ends the link."""
        ...


class Links(Protocol):
    def open(self, upstream: Upstream) -> AbstractAsyncContextManager[LinkStream | None]:
        """Open a link to the helper of one instance; None if the helper is too old. Raises UpstreamUnavailable."""
        ...
