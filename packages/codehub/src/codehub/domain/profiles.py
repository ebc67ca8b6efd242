"""App profiles: how a workspace's IDE is run, reached and listened to. Data; the runtimes and the proxy obey it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AppProfile:
    """One `[profiles.NAME]` of the profiles file, or a shipped one.

    `command` is for the process runtime, with `{port}` or `{socket}`, `{base_path}`, `{home}` and `{id}` filled in; `image`
    and `port` are for containers. `noise` names messages that are nobody's work: `METHOD /path` with `*`
    globs (without the workspace's prefix), or a named frame rule such as `ws:vscode-keepalive`.
    """

    name: str
    command: tuple[str, ...] = ()
    image: str = ""
    port: int = 8080
    health_path: str = "/"
    health_timeout_s: float = 60.0
    strip_prefix: bool = True
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    noise: tuple[str, ...] = ()
    activity_path: str | None = None
