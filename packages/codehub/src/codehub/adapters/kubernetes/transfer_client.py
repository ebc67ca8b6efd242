"""The connection to a Job's pod: a home's bytes, their digest and size, and the pod's errors. Nothing in it is trusted.

A workspace may have got the pod's address meanwhile. So what is read has a limit, nothing is sent to or believed of a pod
that the cluster says is gone, and an error of a pod is one of those that its program has.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from codehub.adapters.kubernetes.transfer_server import NeedsWriting, Superseded
from codehub.adapters.objectstore.layout import Meta
from codehub.domain.errors import ArchiveCorrupted, CodeHubError, OutOfSpace, Terminal, Transient

_FINISH_TIMEOUT_S: Final = 10.0
_LONGEST_ANSWER: Final = 64 << 10
_LONGEST_MESSAGE: Final = 2_000
_TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0, read=300.0, write=300.0)
# What the program of a Job reports. Others, such as that of a lost term, have an effect beyond the one workspace.
_OF_THE_PROGRAM: Final[Mapping[str, type[CodeHubError]]] = {
    kind.__name__: kind for kind in (ArchiveCorrupted, NeedsWriting, OutOfSpace, Superseded, Terminal, Transient)
}


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Transfer:
    """A Job's pod that answers. `holds_its_address` tells whether it still does, as far as the cluster knows."""

    base_url: str
    secret: str
    pod: str
    uid: str = ""  # of the pod
    holds_its_address: Callable[[], bool] = _always

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"authorization": f"Bearer {self.secret}"}
        async with httpx.AsyncClient(
            base_url=self.base_url, headers=headers, timeout=_TIMEOUT, trust_env=False
        ) as client:
            try:
                yield client
            except httpx.HTTPError as error:
                raise Transient(
                    f"the connection to the pod {self.pod} broke: {str(error) or type(error).__name__}"
                ) from error

    @contextlib.asynccontextmanager
    async def archive(self, most: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the archive. Raises OutOfSpace once it has more than `most` bytes."""
        async with self._client() as client, client.stream("GET", "/archive") as response:
            await self._check(response)
            yield self._limited(response.aiter_raw(), most)

    async def _limited(self, pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
        left = most
        async for piece in self._while_there(pieces):
            left -= len(piece)
            if left < 0:
                raise OutOfSpace(
                    f"the archive that the pod {self.pod} sends is longer than {most} bytes, and could not be restored: "
                    "raise CODEHUB_K8S_HOME_SIZE"
                )
            yield piece

    async def _while_there(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self._check_there()
            yield piece

    def _check_there(self) -> None:
        if not self.holds_its_address():
            raise Transient(f"the pod {self.pod} does not confirm what was transferred: it ended before")

    async def result(self) -> Meta:
        """Return the metadata of the last complete archive, or raise its error if it did not complete."""
        async with self._client() as client, client.stream("GET", "/result") as response:
            await self._check(response)
            found = await _answer(response)
        self._check_there()
        if "error" in found:
            raise _error(found)
        numbers: list[Any] = [found.get(name) for name in ("bytes", "tar_bytes", "entries")]
        if all(isinstance(number, int) and 0 <= number < 1 << 63 for number in numbers):
            return Meta(str(found.get("sha256")), *numbers)
        raise Transient(f"the pod {self.pod} of the transfer answered something else than expected")

    async def restore(self, pieces: AsyncIterator[bytes], meta: Meta) -> None:
        headers = {"x-codehub-meta": meta.render().decode().strip().replace("\n", " ")}
        content = self._while_there(pieces)
        async with (
            self._client() as client,
            client.stream("PUT", "/restore", content=content, headers=headers) as response,
        ):
            await self._check(response)

    async def finish(self) -> None:
        """Ask the pod to write its termination message and to end. Best effort: the Job is removed anyway."""
        with contextlib.suppress(CodeHubError):
            async with self._client() as client, client.stream("POST", "/finish", timeout=_FINISH_TIMEOUT_S):
                pass

    async def _check(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            found = await _answer(response)
            self._check_there()
            raise _error(found, response.status_code)


async def _answer(response: httpx.Response) -> dict[str, Any]:
    """Return the short JSON object of an answer, else nothing.

    As it came: a few compressed bytes must not expand to many here.
    """
    raw = bytearray()
    async for piece in response.aiter_raw():
        raw += piece
        if len(raw) > _LONGEST_ANSWER:
            return {}
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(found: dict[str, Any], code: int = 500) -> CodeHubError:
    """Return the error of a Job's pod as if it had happened here."""
    name, message = (
        "".join(char if char.isprintable() else " " for char in str(text)[:_LONGEST_MESSAGE])
        for text in (found.get("error", ""), found.get("message", f"HTTP {code}"))
    )
    kind = _OF_THE_PROGRAM.get(name)
    return Transient(f"the transfer failed: {name} {message}") if kind is None else kind(message)
