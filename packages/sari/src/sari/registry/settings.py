"""sari's settings, all read from the environment. The defaults suit nearly everyone."""

from __future__ import annotations

from collections.abc import Mapping

from sari.protocol.errors import SariError

DEFAULT_DAEMON_PORT = 47791
DEFAULT_HTTP_PORT = 47777


class Settings:
    """The settings. Times are in seconds; 0 means "immediately" for idle workspaces and "never" for an idle daemon."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.daemon_port = _port(environ, "SARI_DAEMON_PORT", DEFAULT_DAEMON_PORT)
        self.http_port = _port(environ, "SARI_HTTP_PORT", DEFAULT_HTTP_PORT)
        self.request_timeout_s = _seconds(environ, "SARI_REQUEST_TIMEOUT_SEC", 120.0) or 120.0
        self.drain_s = _seconds(environ, "SARI_DAEMON_DRAIN_SEC", 60.0)
        self.heartbeat_s = max(0.05, _seconds(environ, "SARI_HEARTBEAT_SEC", 5.0))
        self.session_lease_s = _seconds(environ, "SARI_SESSION_LEASE_SEC", 1800.0)
        self.workspace_idle_s = _seconds(environ, "SARI_WORKSPACE_IDLE_SEC", 600.0)
        self.daemon_idle_s = _seconds(environ, "SARI_DAEMON_IDLE_SEC", 600.0)
        self.start_timeout_s = _seconds(environ, "SARI_START_TIMEOUT_SEC", 30.0)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read the SARI_* variables. Raises `SariError` naming the variable that is not a number."""
        return cls(environ)


def _seconds(environ: Mapping[str, str], name: str, otherwise: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return otherwise
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise SariError(f"{name} is {text!r}: set it to a number of seconds, 0 or more")
    return value


def _port(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return otherwise
    if not text.isdecimal() or not 0 <= int(text) < 65536:
        raise SariError(f"{name} is {text!r}: set it to a port number (0 for any free one)")
    return int(text)
