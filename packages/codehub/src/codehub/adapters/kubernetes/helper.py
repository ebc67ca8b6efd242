"""`workspaced` in a Pod: the files that it needs, how it is started and where it is reached. Pure, except `install`.

An init container runs this module from CodeHub's image and copies the helper's files into a volume, which the workspace
mounts read-only. A post-start hook starts the helper inside the workspace's container: the image's entry point stays
unchanged, and terminals see the same files, limits and devices as the IDE.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from codehub.adapters.workspaced_launch import FOLDER, VARIABLE, Launch, bearer, words
from codehub.ports.instances import Upstream

PLACE: Final = "/opt/codehub"
PORT: Final = 7071
_STAGING: Final = "/helper"  # in the init container, whose image may have its own /opt/codehub
_RUNTIME: Final = "/tmp/.codehub"  # noqa: S108 - inside the container, which is one start; created with 0700
_VOLUME: Final = "codehub"
# An image without Python still runs; features that need the helper report that it does not answer. The hook must exit at
# once and keep no output open: the kubelet waits for both before it reports the container as running.
_HOOK: Final = (
    "p=$(command -v python3) || exit 0\n"
    f"mkdir -p -m 700 {_RUNTIME} || exit 0\n"
    f'{VARIABLE}="$1" "$p" "$2" "$3" "$4" "$5" -- true >>{_RUNTIME}/workspaced.log 2>&1 </dev/null || exit 0\n'
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Helper:
    """The helper of one start. `image` is CodeHub's image."""

    image: str
    secret: str
    port: int = PORT


def init_container(helper: Helper, pull_policy: str, security: Json) -> Json:
    return {
        "name": "helper",
        "image": helper.image,
        "imagePullPolicy": pull_policy,
        "command": ["python3", "-m", "codehub.adapters.kubernetes.helper", _STAGING],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": "128Mi", "ephemeral-storage": "64Mi"},
        },
        "securityContext": security,
        "volumeMounts": [{"name": _VOLUME, "mountPath": _STAGING}],
    }


def volume() -> Json:
    return {"name": _VOLUME, "emptyDir": {"sizeLimit": "64Mi"}}


def mount() -> Json:
    return {"name": _VOLUME, "mountPath": PLACE, "readOnly": True}


def hook(helper: Helper, home: str, ide_port: int) -> Json:
    """Return the container's `lifecycle`."""
    launch = Launch(
        home=home,
        runtime=_RUNTIME,
        listen=f"0.0.0.0:{helper.port}",
        secret=helper.secret,
        hidden_ports=(ide_port, helper.port),
    )
    own = words("python3", f"{PLACE}/workspaced")[1:]
    configuration = launch.environment[VARIABLE]
    return {"postStart": {"exec": {"command": ["/bin/sh", "-c", _HOOK, "workspaced", configuration, *own]}}}


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


def install(place: Path) -> None:
    """Copy the helper's files below `place`."""
    shutil.copytree(FOLDER, place / "workspaced", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
