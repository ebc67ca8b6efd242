"""Maps an address to an entry point ("door") of a workspace: its IDE, one of its ports, or a byte stream. Pure.

A workspace's path leads to the IDE and `port/{n}/…` below it to a port; `/_codehub/{id}/ssh` and `/_codehub/{id}/tcp/{n}`
are streams for programs. If every workspace has its own host, so does every port: `{n}-{id}.ws.example.org`, with the
application at its root. The proxy caches decisions by workspace and door.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from codehub.domain.ids import ID_LENGTH, is_id
from codehub.domain.routing import WORKSPACE_PREFIX, workspace_origin, workspace_path

NO_PORT: Final = 0
STREAMS_PREFIX: Final = "/_codehub/"
PORT_PART: Final = "port"
_OWN_HOST: Final = "/host"
_PORT_ORIGIN: Final = re.compile(r"(https?://)([0-9]+)-([!-~]+)")


class Kind(StrEnum):
    IDE = "ide"
    PORT = "port"
    SSH = "ssh"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class Door:
    kind: Kind = Kind.IDE
    port: int = 0  # NO_PORT for a number that no port has
    own_host: bool = False  # a port reached at the root of its own host

    @property
    def is_stream(self) -> bool:
        return self.kind in (Kind.SSH, Kind.TCP)

    def key(self, workspace_id: str) -> bytes:
        """Return the key for cached decisions."""
        if self.kind is Kind.IDE:
            return workspace_id.encode()
        return f"{workspace_id}/{self.kind}/{self.port}{_OWN_HOST if self.own_host else ''}".encode()


IDE: Final = Door()


# Who may open a port besides its owner. Each value includes the ones before it.
SHARES: Final = ("owner", "users", "link")


def widest_share(setting: str, host_pattern: str) -> str:
    """Return the widest share that administrators allow.

    Under a path, a shared page would have the same origin as the guest's own workspaces, and could use them.
    """
    return setting or ("link" if host_pattern else "owner")


def narrowed(share: str, widest: str) -> str:
    """Return the effective share if administrators allow at most `widest`."""
    return min(share, widest, key=SHARES.index)


def parse_port(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or text.startswith("0"):
        return None
    return int(text) if int(text) <= 65535 else None


def read_key(key: bytes) -> tuple[str, Door]:
    """Return the workspace and the door of a `Door.key`."""
    workspace_id, _, rest = key.decode().partition("/")
    kind, _, port = rest.removesuffix(_OWN_HOST).partition("/")
    return workspace_id, Door(Kind(kind), int(port), rest.endswith(_OWN_HOST)) if rest else IDE


def read_host(host: str, host_pattern: str) -> tuple[str, Door] | None:
    """Return the workspace and port of a port's own host (`{n}-{id}` for the pattern's star), or None for other hosts."""
    if not host_pattern:
        return None
    name, suffix = host.lower().partition(":")[0], host_pattern[1:].lower()
    label = name.removesuffix(suffix)
    number, _, workspace_id = label.partition("-")
    if label == name or len(workspace_id) != ID_LENGTH or not is_id(workspace_id):
        return None
    if not number.isascii() or not number.isdigit():
        return None
    return workspace_id, Door(Kind.PORT, parse_port(number) or NO_PORT, own_host=True)


def is_sibling_port(origin: str, own: str) -> bool:
    """Return whether `origin` is that of a port of the same workspace. `own` is the origin of a port with its own host.

    A workspace's ports trust each other: they may call each other across origins.
    """
    theirs, ours = _PORT_ORIGIN.fullmatch(origin), _PORT_ORIGIN.fullmatch(own)
    return (
        theirs is not None
        and ours is not None
        and parse_port(theirs[2]) is not None
        and (theirs[1], theirs[3].lower()) == (ours[1], ours[3].lower())
    )


def door_label(workspace_id: str, door: Door) -> str:
    """Return the label that replaces the star of a host pattern."""
    return f"{door.port}-{workspace_id}" if door.kind is Kind.PORT else workspace_id


def public_url(base_url: str, host_pattern: str, workspace_id: str, path: str) -> str:
    """Return the URL that a browser opens for a path (with query) below the workspaces' prefix."""
    found = read_path(path.partition("?")[0])
    door = found[1] if found is not None else IDE
    origin = workspace_origin(base_url, host_pattern, door_label(workspace_id, door))
    if door.kind is not Kind.PORT or not host_pattern:
        return origin + path
    rest = path.removeprefix(prefix_of(workspace_id, door))
    return origin + (rest if rest.startswith("/") else f"/{rest}")


def read_path(path: str) -> tuple[str, Door] | None:
    """Return the workspace's id (exactly as in the path) and the door, or None if the path leads nowhere."""
    if path.startswith(STREAMS_PREFIX):
        match path.removeprefix(STREAMS_PREFIX).split("/"):
            case [workspace_id, "ssh"]:
                return workspace_id, Door(Kind.SSH)
            case [workspace_id, "tcp", text]:
                return workspace_id, Door(Kind.TCP, parse_port(text) or NO_PORT)
        return None
    parts = path.removeprefix(WORKSPACE_PREFIX).split("/", 3)
    if len(parts) > 2 and parts[1] == PORT_PART and parts[2].isdigit():
        return parts[0], Door(Kind.PORT, parse_port(parts[2]) or NO_PORT)
    return parts[0], IDE


def prefix_of(workspace_id: str, door: Door) -> str:
    """Return the part of the path before the workspace's own path, without a trailing slash."""
    if door.is_stream:
        return f"{STREAMS_PREFIX}{workspace_id}"
    if door.own_host:
        return ""
    base = workspace_path(workspace_id)
    return base.rstrip("/") if door.kind is Kind.IDE else f"{base}{PORT_PART}/{door.port}"
