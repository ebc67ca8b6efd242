"""What the coordinator needs to set up running workspaces: who is to be linked, what they are sent, what they ask for."""

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
    """A workspace that runs or starts. `version` differs after any change of what it is to be sent."""

    workspace_id: str
    instance_backend: str
    owner_user_id: str
    version: tuple[int, int]


class SetupDesk(Protocol):
    """Everything that a link is given and asks for. Secrets are opened here, for their owner's workspaces alone."""

    async def linkable(self) -> Sequence[Linkable]: ...

    async def bind(self, workspace_id: str, instance: str, owner_user_id: str) -> bool:
        """Whether this start may have this owner's secrets. Not one that began under another owner."""
        ...

    async def message(self, workspace_id: str, owner_user_id: str) -> Message | None:
        """What the workspace is sent; None when there is no such workspace any more."""
        ...

    async def answer(self, workspace_id: str, instance: str, owner_user_id: str, question: Message) -> Message:
        """The answer to one question of a workspace. Raises CodeHubError with what to tell."""
        ...

    async def note(self, workspace_id: str, state: SetupState) -> None: ...

    async def awaits_environment(self, owner_user_id: str) -> bool:
        """Whether the owner has secrets for the environment, which an IDE must wait for."""
        ...


class LinkStream(Protocol):
    async def send(self, message: Message) -> None: ...

    def messages(self) -> AsyncIterator[Message]:
        """Until the workspace hangs up. Malformed lines are left out; an endless one ends it."""
        ...


class Links(Protocol):
    def open(self, upstream: Upstream) -> AbstractAsyncContextManager[LinkStream | None]:
        """A link to the helper of one start; None when it is too old to have one. Raises UpstreamUnavailable."""
        ...
