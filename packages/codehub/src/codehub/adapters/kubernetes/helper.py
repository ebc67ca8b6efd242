"""`workspaced` in a Pod: the files that it needs, how it is started and where it is reached. Pure, except `install`.

An init container runs this module from CodeHub's image and copies CodeHub's tools into a volume, which the workspace mounts
read-only. A second one runs in the workspace's image and adds the workspace's user to the image's users. A post-start hook
starts the helper inside the workspace's container: the image's entry point stays unchanged, and terminals see the same
files, limits and devices as the IDE.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from codehub.adapters.workspace_tools import PLACE, PREPARED, PYTHON
from codehub.adapters.workspaced_launch import Launch, bearer, hook_words
from codehub.ports.instances import Upstream
from codehub.workspaced import start_environment, users, with_environment

PORT: Final = 7071
_STAGING: Final = "/helper"  # in the init container, whose image may have its own /opt/codehub
_RUNTIME: Final = "/tmp/.codehub"  # noqa: S108 - inside the container, which is one start; created with 0700
_PIPE: Final = f"{_RUNTIME}/environment"
# On the tmpfs that every container has; `workspaced` writes the owner's secrets there.
_SECRETS: Final = "/dev/shm/codehub-workspace"  # noqa: S108 - a folder of this user
_VOLUME: Final = "codehub"
SIZE: Final = "256Mi"  # the tools take about 80 MB
_USERS: Final = "etc"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Helper:
    """The helper of one start. `image` is CodeHub's image."""

    image: str
    secret: str
    port: int = PORT
    awaits_environment: bool = False  # the owner has secrets in the environment
    owner: str = ""  # for git's identity


def environment(helper: Helper) -> dict[str, str]:
    """Return variables for everything in the workspace, the IDE included: where git and secrets are found."""
    env = {
        "USER": users.USER,
        "LOGNAME": users.USER,
        **start_environment.for_git(_RUNTIME),
        **start_environment.for_git_identity(helper.owner, _RUNTIME),
        "CODEHUB_SECRETS_DIR": _SECRETS,
    }
    return {**env, with_environment.VARIABLE: _PIPE} if helper.awaits_environment else env


def init_containers(helper: Helper, image: str, home: str, pull_policy: str, security: Json) -> list[Json]:
    """Return the container that brings the tools, and the one that runs them in the workspace's own image."""
    return [
        {
            "name": "helper",
            "image": helper.image,
            "command": ["python3", "-m", "codehub.adapters.kubernetes.helper", _STAGING],
            "volumeMounts": [{"name": _VOLUME, "mountPath": _STAGING}],
            **_small(pull_policy, security),
        },
        {
            "name": "users",
            "image": image,
            "command": [PYTHON, "-I", "-S", "-B", f"{PLACE}/workspaced/users.py", f"{PLACE}/{_USERS}", home],
            "volumeMounts": [{"name": _VOLUME, "mountPath": PLACE}],
            **_small(pull_policy, security),
        },
    ]


def _small(pull_policy: str, security: Json) -> Json:
    return {
        "imagePullPolicy": pull_policy,
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": "128Mi", "ephemeral-storage": SIZE},
        },
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def volume() -> Json:
    return {"name": _VOLUME, "emptyDir": {"sizeLimit": SIZE}}


def mounts() -> list[Json]:
    tables = (
        {"name": _VOLUME, "mountPath": f"/etc/{name}", "subPath": f"{_USERS}/{name}", "readOnly": True}
        for name in ("passwd", "group")
    )
    return [{"name": _VOLUME, "mountPath": PLACE, "readOnly": True}, *tables]


def hook(helper: Helper, home: str, ide_port: int) -> Json:
    """Return the container's `lifecycle`."""
    launch = Launch(
        home=home,
        runtime=_RUNTIME,
        listen=f"*:{helper.port}",
        secret=helper.secret,
        hidden_ports=(ide_port, helper.port),
        owner=helper.owner,
        in_image=True,
        environment_pipe=_PIPE if helper.awaits_environment else "",
    )
    return {"postStart": {"exec": {"command": hook_words(PYTHON, f"{PLACE}/workspaced", launch)}}}


def written(helper: Helper) -> str:
    """Return the helper's data as a Pod annotation, for every part of CodeHub that connects."""
    return json.dumps({"port": helper.port, "secret": helper.secret})


def upstream(identity: str, ip: str, annotation: str) -> Upstream | None:
    """Return where a running Pod's helper answers, or None for a Pod that was started without it."""
    try:
        match json.loads(annotation or "null"):
            case {"port": int(port), "secret": str(secret)} if ip:
                return Upstream(identity, ip, port, secret=bearer(secret))
    except ValueError:
        pass
    return None


def install(place: Path, prepared: Path = PREPARED) -> None:
    """Copy CodeHub's tools to `place`."""
    if not prepared.is_dir():
        sys.exit(f"this image has no tools for workspaces in {prepared}: build it from CodeHub's Dockerfile")
    for folder in prepared.iterdir():  # one by one: the volume's own root belongs to another user
        shutil.copytree(folder, place / folder.name, symlinks=True, dirs_exist_ok=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
