"""The settings of servers, workspaces and addresses: name in the environment, default, meaning and validation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from codehub.data_dir import default_data_dir
from codehub.settings.types import (
    ArchiveUrl,
    BaseUrl,
    Bind,
    Bytes,
    DatabaseUrl,
    ImageRegistry,
    Networks,
    RedisUrl,
    Seconds,
    SecretKeys,
    SystemUser,
    Words,
    WorkspaceHost,
)


class CoreSettings(BaseModel):
    """What every installation has. An empty string means the embedded part, or derived from another setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    data_dir: Path = Field(
        default_factory=default_data_dir,
        alias="CODEHUB_DATA_DIR",
        description="Directory of CodeHub's data: embedded servers, homes, archives and IDEs.",
    )
    database_url: DatabaseUrl = Field(
        "", alias="CODEHUB_DATABASE_URL", description="URL of a PostgreSQL server. Empty: the embedded one."
    )
    redis_url: RedisUrl = Field(
        "", alias="CODEHUB_REDIS_URL", description="URL of a Redis or Valkey server. Empty: the embedded one."
    )
    archive_url: ArchiveUrl = Field(
        "",
        alias="CODEHUB_ARCHIVE_URL",
        description="Where archives are stored, as `file://` or `s3://` URL. Empty: `archives` in the data directory. "
        "S3 credentials and endpoint come from the usual AWS_* variables.",
    )
    runtime: Literal["auto", "process", "docker", "kubernetes"] = Field(
        "auto",
        alias="CODEHUB_RUNTIME",
        description="Where new workspaces run. `auto`: docker if an engine answers and has or can pull the default image, "
        "else process.",
    )
    docker_host: str = Field(
        "", alias="DOCKER_HOST", description="The Docker engine's Unix socket. Empty: its default socket."
    )
    homes_dir: Path | None = Field(
        None,
        alias="CODEHUB_HOMES_DIR",
        description="Where local homes are stored. Empty: `homes` in the data directory.",
    )
    homes_host_dir: Path | None = Field(
        None,
        alias="CODEHUB_HOMES_HOST_DIR",
        description="The path of that directory on the Docker host, if CodeHub itself runs in a container.",
    )
    sockets_dir: Path | None = Field(
        None,
        alias="CODEHUB_SOCKETS_DIR",
        description="Directory of the containers' sockets. If CodeHub itself runs in containers, mount it into API, proxy "
        "and coordinator at the same path as on the Docker host. Empty: `run/containers` in the data directory.",
    )
    storage: Literal["local-dir", "docker-volume", "pvc"] = Field(
        "local-dir",
        alias="CODEHUB_STORAGE",
        description="Where the homes of new workspaces are stored. On Kubernetes always `pvc`.",
    )
    default_profile: str = Field(
        "code-server", alias="CODEHUB_DEFAULT_PROFILE", description="The profile of new workspaces."
    )
    profiles_file: Path | None = Field(
        None, alias="CODEHUB_PROFILES_FILE", description="A TOML file with additional profiles."
    )
    image_registry: ImageRegistry = Field(
        "",
        alias="CODEHUB_IMAGE_REGISTRY",
        description="Registry of the shipped profiles' images. With `registry.example.org/team`, code-server's image is "
        "`registry.example.org/team/codehub/code-server:1`. Empty: `codehub/code-server:1`, as images/build.sh names it.",
    )
    allowed_images: Words = Field(
        (),
        alias="CODEHUB_ALLOWED_IMAGES",
        description="Images that users may choose, as glob patterns, in addition to those of the profiles. "
        "docs/profiles.md lists what a pattern allows.",
    )
    devcontainer_builds: bool = Field(
        False,
        alias="CODEHUB_DEVCONTAINER_BUILDS",
        description="Whether Dockerfiles and features of a repository's devcontainer.json are built on Docker. Build steps "
        "run as root in containers. Images without a build do not need this setting.",
    )
    allowed_features: Words = Field(
        (),
        alias="CODEHUB_ALLOWED_FEATURES",
        description="Features of devcontainer.json that may be fetched from a registry, as glob patterns "
        "(`registry.example.org/team/*`), in addition to CODEHUB_ALLOWED_IMAGES. The coordinator fetches them. A registry "
        "with a private address must be named without `*` in its host.",
    )
    registry_ca_file: Path | None = Field(
        None,
        alias="CODEHUB_REGISTRY_CA_FILE",
        description="PEM file of certificate authorities that are trusted in addition to the system's when features are "
        "fetched from a registry.",
    )
    registry_auth_file: Path | None = Field(
        None,
        alias="CODEHUB_REGISTRY_AUTH_FILE",
        description="Logins for the registries of features: a `config.json` as `docker login` writes it, with passwords "
        "(`auths`), not with a credential helper. Everybody who may use a feature uses its registry's login.",
    )
    build_timeout_s: Seconds = Field(
        1800.0,
        gt=0,
        alias="CODEHUB_BUILD_TIMEOUT",
        description="How long the build or pull of a devcontainer.json's image may take.",
    )
    build_size: Bytes = Field(
        20 << 30,
        alias="CODEHUB_BUILD_SIZE",
        description="Maximum size of a devcontainer.json's image during its build.",
    )
    instance_memory: Bytes = Field(
        4 << 30, alias="CODEHUB_INSTANCE_MEMORY", description="Memory limit of a workspace."
    )
    instance_cpus: float = Field(2.0, gt=0, alias="CODEHUB_INSTANCE_CPUS", description="CPU limit of a workspace.")
    instance_pids: int = Field(
        2048, gt=15, alias="CODEHUB_INSTANCE_PIDS", description="Process limit of a workspace."
    )
    instance_networks: Networks = Field(
        (),
        alias="CODEHUB_INSTANCE_NETWORKS",
        description="Private networks that process and container workspaces may reach, for example 10.20.0.0/16. "
        "Empty: none.",
    )
    instance_user_namespaces: bool = Field(
        False,
        alias="CODEHUB_INSTANCE_USER_NAMESPACES",
        description="Whether process workspaces may create user namespaces (rootless containers need them).",
    )
    isolation: Literal["auto", "required", "best-effort"] = Field(
        "auto",
        alias="CODEHUB_ISOLATION",
        description="What to do if a process workspace cannot be isolated. auto: refuse to start it if there are several "
        "users or if workspaces were isolated here before. required: always refuse. best-effort: start it anyway.",
    )
    secrets_key: SecretKeys = Field(
        "",
        alias="CODEHUB_SECRETS_KEY",
        description="Encrypts users' secrets in the database: 32 bytes in base64, or several separated by commas, newest "
        "first. Empty: a key in the data directory. All parts of one installation need the same.",
    )
    secrets_key_file: Path | None = Field(
        None,
        alias="CODEHUB_SECRETS_KEY_FILE",
        description="File that holds CODEHUB_SECRETS_KEY. Empty: `secrets.key` in the data directory, created when needed.",
    )
    git_ca_file: Path | None = Field(
        None,
        alias="CODEHUB_GIT_CA_FILE",
        description="PEM file of certificate authorities that git trusts in addition to the system's.",
    )
    partial_clone_bytes: Bytes = Field(
        100 << 20,
        alias="CODEHUB_PARTIAL_CLONE_SIZE",
        description="Larger repositories are cloned without the contents of old versions; git fetches them on demand.",
    )
    setup_timeout_s: Seconds = Field(
        3600.0,
        gt=0,
        alias="CODEHUB_SETUP_TIMEOUT",
        description="How long one step of a workspace's setup may take: dotfiles, a command of the template or of "
        "devcontainer.json that runs once. Then it is stopped, and the next step follows.",
    )

    user: SystemUser = Field(
        "codehub",
        alias="CODEHUB_USER",
        description="If `codehub up` is started as root, the system user that runs the API, the proxy and the embedded "
        "servers; created if it is missing. `root` runs API and proxy as root.",
    )
    api_bind: Bind = Field(
        "127.0.0.1:8000", alias="CODEHUB_API_BIND", description="Address and port of the API and the dashboard."
    )
    proxy_bind: Bind = Field(
        "127.0.0.1:8001", alias="CODEHUB_PROXY_BIND", description="Address and port of the workspace proxy."
    )
    public_base_url: BaseUrl = Field(
        "",
        alias="CODEHUB_PUBLIC_BASE_URL",
        description="URL of the dashboard in the browser. Empty: derived from CODEHUB_API_BIND.",
    )
    workspace_base_url: BaseUrl = Field(
        "",
        alias="CODEHUB_WORKSPACE_BASE_URL",
        description="URL of the workspaces in the browser; its host name must differ from the dashboard's. "
        "Empty: `http://localhost:PORT`.",
    )
    workspace_host: WorkspaceHost = Field(
        "",
        alias="CODEHUB_WORKSPACE_HOST",
        description="Gives each workspace its own host name, for example `*.ws.example.org`. `none`: all share the host of "
        "CODEHUB_WORKSPACE_BASE_URL. Unset: `codehub up` uses `*.localhost` if both listeners and both URLs are on this "
        "machine only.",
    )
    api_socket: Path | None = Field(
        None,
        alias="CODEHUB_API_SOCKET",
        description="The API also listens on this Unix socket, for a reverse proxy on the same machine. The X-Forwarded-* "
        "headers of requests there are trusted. Everyone in the group of its directory may connect.",
    )
    proxy_socket: Path | None = Field(
        None, alias="CODEHUB_PROXY_SOCKET", description="The same for the workspace proxy."
    )
    trusted_proxies: Words = Field(
        (),
        alias="CODEHUB_TRUSTED_PROXIES",
        description="Addresses or networks whose X-Forwarded-* headers are trusted.",
    )
    trusted_proxy_secret: str = Field(
        "",
        repr=False,
        alias="CODEHUB_TRUSTED_PROXY_SECRET",
        description="If set, a trusted proxy must send this in the header X-CodeHub-Proxy-Secret. "
        "Other programs on its machine have the same address.",
    )
    admin_username: str = Field(
        "admin", min_length=1, max_length=64, alias="CODEHUB_ADMIN_USERNAME", description="Name of the first user."
    )
    admin_password: str = Field(
        "",
        alias="CODEHUB_ADMIN_PASSWORD",
        description="Password of the first user. Empty: `codehub up` generates one and stores it in a file; `codehub serve "
        "api` creates no user.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", alias="CODEHUB_LOG_LEVEL", description="Lowest level that is logged."
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        alias="CODEHUB_LOG_FORMAT",
        description="Log format. `auto`: text on a terminal, JSON lines otherwise.",
    )

    @model_validator(mode="after")
    def _check_data_dir(self) -> Self:
        if not self.data_dir.is_absolute():
            raise ValueError(f"CODEHUB_DATA_DIR must be an absolute path, not {str(self.data_dir)!r}")
        return self

    @property
    def server_user(self) -> str:
        """The user of the embedded servers: PostgreSQL never runs as root."""
        return "codehub" if self.user == "root" else self.user

    @property
    def homes(self) -> Path:
        return self.homes_dir or self.data_dir / "homes"

    @property
    def archives(self) -> str:
        return self.archive_url or f"file://{self.data_dir / 'archives'}"

    @property
    def public_url(self) -> str:
        return self.public_base_url or f"http://{self.api_bind}"

    @property
    def workspace_url(self) -> str:
        return self.workspace_base_url or f"http://localhost:{self.proxy_bind.rpartition(':')[2]}"
