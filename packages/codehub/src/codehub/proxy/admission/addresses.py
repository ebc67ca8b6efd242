"""The addresses of workspaces and their ports, and whether a request used the right one."""

from __future__ import annotations

from dataclasses import dataclass

from codehub.domain import routing
from codehub.domain.doors import Door, door_label, prefix_of, public_url
from codehub.proxy.http1.headers import HOST_PREFIX


@dataclass(frozen=True, slots=True)
class Addresses:
    """`dashboard` is the public base URL; the other two match the settings."""

    dashboard: str
    workspaces: str
    host_pattern: str

    @property
    def secure(self) -> bool:
        return self.workspaces.startswith("https:")

    def cookie(self, name: bytes) -> bytes:
        """Return the full name of a cookie. Other hosts of the site cannot set one with the prefix.

        Such a cookie is for all paths of its host, so workspaces that share a host do not use it.
        """
        return HOST_PREFIX + name if self.secure and self.host_pattern else name

    def authority(self, workspace_id: str, door: Door) -> bytes:
        label = door_label(workspace_id, door)
        return routing.workspace_authority(self.workspaces, self.host_pattern, label).encode()

    def origin(self, workspace_id: str, door: Door) -> str:
        return routing.workspace_origin(self.workspaces, self.host_pattern, door_label(workspace_id, door))

    def url(self, workspace_id: str, door: Door, rest: str) -> str:
        """Return the correct URL of the requested `rest`."""
        return public_url(self.workspaces, self.host_pattern, workspace_id, below_prefix(workspace_id, door, rest))


def below_prefix(workspace_id: str, door: Door, rest: str) -> str:
    """Return the path below the workspaces' prefix, regardless of the requested host."""
    return prefix_of(workspace_id, Door(door.kind, door.port)) + rest if door.own_host else rest


def cookie_path(workspace_id: str, door: Door) -> str:
    return "/" if door.own_host else routing.workspace_path(workspace_id)
