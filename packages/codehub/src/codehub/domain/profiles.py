"""App profiles: how to run a workspace's IDE, how to reach it and how to detect activity. Data for the runtimes and the
proxy.

Also defines what a workspace's `image_ref` means: a profile name, or an allowed image.
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
    """One `[profiles.NAME]` of the profiles file, or a built-in profile.

    `command` is for the process runtime; `image` and `port` are for containers. In `command` and in `env`, `{port}` or
    `{socket}`, `{base_path}` (the workspace's path), `{home}`, `{id}` and `{secret}` are filled in. `{secret}` is new for
    every start, and the proxy adds `secret_header` (`Name: value with {secret}`), so that no other user of the machine gets
    access.

    `background_traffic` lists messages that do not count as activity: `METHOD /path` with `*` globs (without the prefix),
    or a named frame rule such as `ws:vscode-keepalive`. `health_timeout_s` is how long a start may take until `health_path`
    answers; every health check waits that long. `close_code` is sent to WebSockets when a proxy shuts down: 1001 by the
    standard, or 1012 (service restart) for an IDE that treats 1001 as final and never reconnects. `own_image` is false for
    an image that a user named: it may have no IDE.
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
    # Globs of the IDE's pages, without the prefix: they show the workspace's name in the title, and that it sleeps.
    pages: tuple[str, ...] = ()
    # False for an IDE whose open page goes on with another server process, so that unsaved text in it is kept.
    reload_after_wake: bool = True
    # Appended to the workspace's address to open a folder; `{home}` and `{folder}` are filled in. Empty if unsupported.
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
    pages=("/",),
    port=8080,
    health_path="/healthz",
    strip_prefix=True,
    # If code-server listens on a port, its own sign-in keeps others out: the session cookie of a hashed password is the
    # hash itself, and no password is known that produces this one. Behind a Unix socket no sign-in is needed.
    env=MappingProxyType({"HASHED_PASSWORD": "{secret}"}),
    secret_header="Cookie: code-server-session={secret}",  # noqa: S106 - a pattern, not a secret
    background_traffic=(
        "ws:vscode-keepalive",
        # Code-server's own files in the home, which it watches: a lock it touches every second, heartbeats, logs, state.
        "ws:vscode-message:/.local/share/code-server/",
        # The window's own log, of which it reports every change to the extension host.
        "ws:vscode-message:vscode-log:/",
        "ws:vscode-message:telemetry",
        "ws:vscode-message:$publicLog",
        "ws:vscode-message:.events.data.microsoft.com",
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
    pages=("/lab", "/lab/*", "/doc", "/doc/*"),
    reload_after_wake=False,
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
        # Every ten seconds, an open file browser lists its directory and the tab saves its layout.
        "GET /api/contents*",
        # The server announces each of those requests to every tab.
        'ws:text:"action": "get"',
        "GET /lab/api/workspaces*",
        "PUT /lab/api/workspaces*",
        "GET /lsp/status",
    ),
    # A cell continues to run after the tab is closed.
    activity_path="/api/kernels",
    # JupyterLab's terminals and kernels do not reconnect after 1000 and 1001.
    close_code=1012,
)

SHIPPED: Mapping[str, AppProfile] = MappingProxyType({p.name: p for p in (CODE_SERVER, JUPYTERLAB)})


@dataclass(frozen=True, slots=True)
class Catalog:
    """All profiles of this installation, the default profile, and the other images that may be run."""

    profiles: Mapping[str, AppProfile] = field(default_factory=lambda: SHIPPED)
    default: str = "code-server"
    allowed_images: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.default not in self.profiles:
            known = ", ".join(sorted(self.profiles))
            raise Invalid(f"CODEHUB_DEFAULT_PROFILE={self.default!r} is not a profile; use one of {known}")

    def resolve(self, image_ref: str | None, runs: Runs, *, run_as: str = "") -> tuple[str, AppProfile]:
        """Return what to run for an `image_ref` on a backend that runs commands or images, and with which profile.

        The only rule for allowed images: the API applies it at creation, the coordinator at every start. Raises Invalid
        (400) if the image may not be run there. `run_as` names the profile of a template. An administrator chose its image,
        so it need not be among the allowed ones.
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
        if image.is_built:
            raise Invalid(f"{image} was built for one workspace and is used there only")
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
