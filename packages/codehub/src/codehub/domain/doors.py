"""Which way into a workspace an address is: its IDE, one of its ports, or a byte stream. Pure.

`/w/{id}/…` is the IDE, `/w/{id}/port/{n}/…` a port's pages; `/_codehub/{id}/ssh` and `/_codehub/{id}/tcp/{n}` are streams
for programs. What the proxy remembers of a decision is kept by workspace and door.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

STREAMS_PREFIX: Final = "/_codehub/"
PORT_PART: Final = "port"


class Kind(StrEnum):
    IDE = "ide"
    PORT = "port"
    SSH = "ssh"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class Door:
    kind: Kind = Kind.IDE
    port: int = 0

    @property
    def is_stream(self) -> bool:
        return self.kind in (Kind.SSH, Kind.TCP)

    def key(self, workspace_id: str) -> bytes:
        """By which decisions about it are remembered."""
        return workspace_id.encode() if self.kind is Kind.IDE else f"{workspace_id}/{self.kind}/{self.port}".encode()


IDE: Final = Door()


def parse_port(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or text.startswith("0"):
        return None
    return int(text) if int(text) <= 65535 else None


def read_key(key: bytes) -> tuple[str, Door]:
    """The workspace and the door of a `Door.key`."""
    workspace_id, _, rest = key.decode().partition("/")
    kind, _, port = rest.partition("/")
    return workspace_id, Door(Kind(kind), int(port)) if rest else IDE


def read_path(path: str) -> tuple[str, Door] | None:
    """The workspace's id (as it stands there) and the door; None for what leads nowhere."""
    if path.startswith(STREAMS_PREFIX):
        match path.removeprefix(STREAMS_PREFIX).split("/"):
            case [workspace_id, "ssh"]:
                return workspace_id, Door(Kind.SSH)
            case [workspace_id, "tcp", text] if port := parse_port(text):
                return workspace_id, Door(Kind.TCP, port)
        return None
    parts = path.removeprefix("/w/").split("/", 3)
    if len(parts) > 2 and parts[1] == PORT_PART and (port := parse_port(parts[2])):
        return parts[0], Door(Kind.PORT, port)
    return parts[0], IDE


def prefix_of(workspace_id: str, door: Door) -> str:
    """What stands before the part of an address that is the workspace's own; without a slash at its end."""
    if door.is_stream:
        return f"{STREAMS_PREFIX}{workspace_id}"
    return f"/w/{workspace_id}" if door.kind is Kind.IDE else f"/w/{workspace_id}/{PORT_PART}/{door.port}"
