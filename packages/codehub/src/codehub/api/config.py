"""The API's dependencies (`ApiDeps`, created by the entry point) and the settings it uses."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import uuid_utils
from prometheus_client import CollectorRegistry

from codehub.adapters.git_remote import GitRemote
from codehub.adapters.secret_box import SecretBox
from codehub.api.views import LimitsView
from codehub.domain.doors import Door, Kind, prefix_of, public_url, widest_share
from codehub.domain.errors import Invalid, Unavailable
from codehub.domain.limits import RunningLimits
from codehub.domain.profiles import AppProfile
from codehub.domain.routing import workspace_origin, workspace_url
from codehub.ports.archives import ArchiveReceipts
from codehub.ports.bus import Bus
from codehub.ports.instances import Instances
from codehub.ports.terminal_program import TerminalProgram
from codehub.services.database import Database
from codehub.services.event_stream import Pace
from codehub.services.passwords import Passwords
from codehub.services.workspaces import BackendChoice
from codehub.settings import Settings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ApiConfig:
    public_url: str  # the dashboard's origin as seen by browsers
    workspace_url: str  # the proxy's origin
    workspace_host: str  # *.ws.example.org, or empty
    trusted_proxies: tuple[Network, ...]
    limits: RunningLimits
    default_profile: str
    allowed_images: tuple[str, ...]
    ttl_standby_s: float
    ttl_archive_s: float
    deleted_retention_s: float
    sse_prefix: str
    lock_id: int
    node_id: str
    port_sharing: str = "link"
    # By profile: the address suffix that makes its IDE open a folder.
    folder_addresses: Mapping[str, str] = field(default_factory=dict)
    audit_retention_s: float = 31_536_000
    proxy_secret: str = field(default="", repr=False)
    max_workspaces: int = 0  # of one user; 0: no limit

    @property
    def limits_view(self) -> LimitsView:
        return LimitsView(
            max_running_per_user=self.limits.per_user,
            max_running_global=self.limits.in_all,
            max_workspaces_per_user=self.max_workspaces,
        )

    @property
    def secure(self) -> bool:
        return self.public_url.startswith("https://")

    @property
    def session_cookie(self) -> str:
        return "__Host-session" if self.secure else "session"

    def url_of(self, workspace_id: str) -> str:
        return workspace_url(self.workspace_url, self.workspace_host, workspace_id)

    @property
    def workspace_origins(self) -> str:
        """The origins of workspaces, as a source of a Content-Security-Policy."""
        return workspace_origin(self.workspace_url, self.workspace_host, "*")

    @property
    def host_checks(self) -> tuple[str, ...]:
        """Origins that the dashboard tries to reach on a laptop, to find out whether the browser resolves `*.localhost`."""
        if not self.workspace_host.endswith(".localhost"):
            return ()
        return (self.workspace_url, workspace_origin(self.workspace_url, self.workspace_host, "resolves"))

    def port_url_of(self, workspace_id: str, port: int) -> str:
        path = f"{prefix_of(workspace_id, Door(Kind.PORT, port))}/"
        return public_url(self.workspace_url, self.workspace_host, workspace_id, path)


def api_config(settings: Settings, *, public_url: str = "", workspace_url: str = "") -> ApiConfig:
    """Create the configuration from the settings. The URLs are passed if a port other than the configured one was used."""
    return ApiConfig(
        public_url=public_url or settings.public_url,
        workspace_url=workspace_url or settings.workspace_url,
        workspace_host=settings.workspace_host,
        trusted_proxies=tuple(_network(each) for each in settings.trusted_proxies),
        limits=RunningLimits(settings.max_running_per_user, settings.max_running_global),
        default_profile=settings.default_profile,
        allowed_images=settings.allowed_images,
        ttl_standby_s=settings.ttl_standby_s,
        ttl_archive_s=settings.ttl_archive_s,
        deleted_retention_s=settings.deleted_retention_s,
        sse_prefix=settings.sse_prefix,
        lock_id=settings.lock_id,
        node_id=settings.node_id,
        port_sharing=widest_share(settings.port_sharing, settings.workspace_host),
        audit_retention_s=settings.audit_retention_s,
        proxy_secret=settings.trusted_proxy_secret,
        max_workspaces=settings.max_workspaces_per_user,
    )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise Invalid(f"CODEHUB_TRUSTED_PROXIES: {text!r} is neither an address nor a network") from error


def utc_now() -> datetime:
    return datetime.now(UTC)


def uuid7() -> str:
    return str(uuid_utils.uuid7())


def _no_secret_box() -> SecretBox:
    raise Unavailable("this API process has no key for secrets")


@dataclass(frozen=True, slots=True)
class ApiDeps:
    database: Database
    bus: Bus
    config: ApiConfig
    instances: Mapping[str, Instances]  # by name, for logs and usage
    choose_backends: Callable[[], Awaitable[BackendChoice]]  # for new workspaces
    profiles: Mapping[str, AppProfile]
    archives: ArchiveReceipts | None = None  # for recovering from archives that no row names
    # Encrypts what users store; lists the branches of repositories.
    secret_box: Callable[[], SecretBox] = _no_secret_box
    git_remote: GitRemote = field(default_factory=GitRemote)
    terminal_program: TerminalProgram | None = None  # renders terminals in a browser
    # The reason why this runtime allows no second user, or None.
    second_user_refused: Callable[[], str | None] = lambda: None
    clock: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    ids: Callable[[], str] = uuid7
    passwords: Passwords = field(default_factory=Passwords)
    pace: Pace = field(default_factory=Pace)
    # One registry for all components in the process, so that /metrics includes the coordinator's metrics.
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
