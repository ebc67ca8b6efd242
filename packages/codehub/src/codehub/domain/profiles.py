"""App profiles: how a workspace's IDE is run, reached and listened to. Data; the runtimes and the proxy obey it.

Also the rule for what a workspace's `image_ref` means: a profile's name, or an image that is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from codehub.domain.errors import Invalid
from codehub.domain.images import is_allowed, parse_image


class Runs(StrEnum):
    """What an instance backend starts: a profile's command on this machine, or a container image."""

    COMMAND = "command"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class AppProfile:
    """One `[profiles.NAME]` of the profiles file, or a shipped one.

    `command` is for the process runtime; `image` and `port` are for containers. In `command` and in `env`, `{port}` or
    `{socket}`, `{base_path}` (the workspace's path), `{home}`, `{id}` and `{secret}` are filled in; `{secret}` is new
    with every start, and `secret_header` (`Name: value with {secret}`) is what the proxy adds so that nobody else on
    the machine gets in.
    `background_traffic` lists messages that do not count as work: `METHOD /path` with `*` globs (without the prefix), or a
    named frame rule such as `ws:vscode-keepalive`. `health_timeout_s` is how long a start may take until `health_path`
    answers: whoever waits for health gives it that long. `close_code` is what its WebSockets are told when a proxy goes
    away: 1001 by the book, 1012 (a restart) for an IDE that takes 1001 for good and never connects again.
    `own_image` is false for an image that a user named: it may have no IDE at all.
    """

    name: str
    command: tuple[str, ...] = ()
    image: str = ""
    port: int = 8080
    health_path: str = "/"
    health_timeout_s: float = 60.0
    strip_prefix: bool = True
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    background_traffic: tuple[str, ...] = ()
    activity_path: str | None = None
    secret_header: str = ""
    close_code: int = 1001
    own_image: bool = True
    # Added to the workspace's address to open a folder; `{home}` and `{folder}` are filled in. Empty: it cannot.
    folder_address: str = ""


CODE_SERVER = AppProfile(
    name="code-server",
    command=(
        "code-server",
        "--auth",
        "none",
        "--socket",
        "{socket}",
        "--socket-mode",
        "660",
        "--disable-telemetry",
        "--disable-update-check",
        "--disable-workspace-trust",
        "--disable-getting-started-override",
        "{home}",
    ),
    image="codehub/code-server:1",
    folder_address="?folder={home}/{folder}",
    port=8080,
    health_path="/healthz",
    strip_prefix=True,
    # Where it listens on a port, its own sign-in keeps others out: the session cookie of a hashed password is the hash
    # itself, and nobody knows a password with this one. Behind a Unix socket it asks for none.
    env=MappingProxyType({"HASHED_PASSWORD": "{secret}"}),
    secret_header="Cookie: code-server-session={secret}",  # noqa: S106 - a pattern, not a secret
    background_traffic=(
        "ws:vscode-keepalive",
        # Its own files in the home it watches: a lock it touches every second, heartbeats, logs, state.
        "ws:vscode-message:/.local/share/code-server/",
        "ws:vscode-message:telemetry",
        "ws:vscode-message:$onDidTunnelsChange",
        "GET /healthz",
        "GET /update/check",
    ),
)

JUPYTERLAB = AppProfile(
    name="jupyterlab",
    command=(
        "jupyter-lab",
        "--ServerApp.base_url={base_path}",
        "--ServerApp.sock={socket}",
        "--ServerApp.sock_mode=0660",
        "--no-browser",
        "--ServerApp.allow_origin=*",
        "--ServerApp.allow_remote_access=True",
        "--ServerApp.root_dir={home}",
        "--LanguageServerManager.autodetect=False",
        "--LabApp.news_url=None",
    ),
    image="codehub/jupyterlab:1",
    folder_address="lab/tree/{folder}",
    port=8888,
    health_path="/api",
    health_timeout_s=90.0,
    strip_prefix=False,
    env=MappingProxyType({"JUPYTER_TOKEN": "{secret}"}),
    secret_header="Authorization: token {secret}",  # noqa: S106 - a pattern, not a secret
    background_traffic=(
        "GET /api",
        "GET /api/status",
        "GET /api/me",
        "GET /api/kernels",
        "GET /api/kernelspecs",
        "GET /api/sessions",
        "GET /api/terminals",
        # An open file browser looks at its directory, and the tab saves its layout, every ten seconds.
        "GET /api/contents*",
        # And the server announces each of those looks to every tab.
        'ws:text:"action": "get"',
        "GET /lab/api/workspaces*",
        "PUT /lab/api/workspaces*",
        "GET /lsp/status",
    ),
    # A cell that computes goes on when the tab is closed.
    activity_path="/api/kernels",
    # Its terminals and kernels stay disconnected after 1000 and 1001.
    close_code=1012,
)

SHIPPED: Mapping[str, AppProfile] = MappingProxyType({p.name: p for p in (CODE_SERVER, JUPYTERLAB)})


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every profile of this installation, the default one, and which other images may be run."""

    profiles: Mapping[str, AppProfile] = field(default_factory=lambda: SHIPPED)
    default: str = "code-server"
    allowed_images: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.default not in self.profiles:
            known = ", ".join(sorted(self.profiles))
            raise Invalid(f"CODEHUB_DEFAULT_PROFILE={self.default!r} is not a profile; use one of {known}")

    def resolve(self, image_ref: str | None, runs: Runs, *, run_as: str = "") -> tuple[str, AppProfile]:
        """What a backend that runs commands, or images, is to run for an `image_ref`, and as what.

        The only rule for which images are allowed: the API asks it at creation, the coordinator at every start. Invalid
        (400) when it may not be run there. `run_as` names the profile of a template, whose image an administrator chose:
        it need not be among the allowed ones.
        """
        reference = self.default if image_ref is None else image_ref
        profile = self.profiles.get(reference)
        if profile is not None:
            if runs is Runs.COMMAND and not profile.command:
                raise Invalid(f"the profile {reference!r} has no command, and workspaces here are processes")
            if runs is Runs.IMAGE and not profile.image:
                raise Invalid(f"the profile {reference!r} has no image, and workspaces here are containers")
            return (profile.name if runs is Runs.COMMAND else profile.image), profile
        known = ", ".join(sorted(self.profiles))
        if runs is Runs.COMMAND:
            raise Invalid(f"{reference!r} is not a profile, and workspaces here are processes; choose one of {known}")
        image = parse_image(reference)
        if run_as:
            if run_as not in self.profiles:
                raise Invalid(f"there is no profile {run_as!r}; there are {known}")
            return str(image), replace(self.profiles[run_as], image=str(image))
        globs = (*self.allowed_images, *(str(parse_image(p.image)) for p in self.profiles.values() if p.image))
        if not is_allowed(image, globs):
            raise Invalid(
                f"the image {image} is not allowed here; choose one of {known},"
                " or ask an administrator to add it to CODEHUB_ALLOWED_IMAGES"
            )
        return str(image), replace(self.profiles[self.default], image=str(image), own_image=False)
