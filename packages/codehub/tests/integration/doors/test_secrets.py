"""Secrets on each runtime: in the IDE's environment and in memory; never in the home or in what the engine shows."""

from __future__ import annotations

import json
import shlex
import subprocess
import time

from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S

_SECRET = "s3cret-of-this-test"
# What a program started now finds, by parts of it: what a command prints is kept in the home. The image has few programs.
_LOOK = """
import json, os, pathlib
folder = pathlib.Path(os.environ["CODEHUB_SECRETS_DIR"])
mounts = [line.split()[1:3] for line in open("/proc/mounts")]
print(json.dumps({
    "env": os.environ.get("API_TOKEN", "")[:6],
    "files": {file.name: file.read_text()[:6] for file in folder.iterdir()} if folder.is_dir() else {},
    "mode": oct(folder.stat().st_mode & 0o777) if folder.is_dir() else "",
    "on": max((place, kind) for place, kind in mounts if (str(folder) + "/").startswith(place.rstrip("/") + "/"))[1],
}))
"""


def until_sees(doors: Doors, env: str, files: dict[str, str]) -> dict[str, str]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        seen = dict(json.loads(doors.sh(shlex.join(["python3", "-c", _LOOK]))))
        if (seen["env"], seen["files"]) == (env, files):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


def wake(doors: Doors) -> None:
    with doors.client() as client:
        assert client.patch(doors.api, json={"desired_state": "RUNNING"}).status_code == 200
    doors.until("RUNNING")


def test_secrets_reach_the_workspace_alone(doors: Doors) -> None:
    wake(doors)
    with doors.client() as client:
        for name, kind in (("API_TOKEN", "env"), ("cert.pem", "file")):
            assert client.put(f"/api/v1/secrets/{name}", json={"kind": kind, "value": _SECRET}).status_code < 300
        try:
            # At once in new commands, from the next start on in the IDE itself.
            seen = until_sees(doors, "s3cret", {"cert.pem": "s3cret"})
            assert (seen["on"], seen["mode"]) == ("tmpfs", "0o700")
            doors.sleep()
            wake(doors)
            ide = client.get(doors.at_proxy(f"/w/{doors.workspace_id}/env"))
            assert ide.status_code == 200
            assert ide.json()["API_TOKEN"] == _SECRET
            assert doors.sh(f"grep -rlF {_SECRET[:6]}''{_SECRET[6:]} ~ 2>/dev/null; true") == ""
            if host := doors.stack.environment.get("DOCKER_HOST"):
                assert _SECRET not in _inspected(host)
        finally:
            for name in ("API_TOKEN", "cert.pem"):
                client.delete(f"/api/v1/secrets/{name}")
    until_sees(doors, "", {})
    assert _SECRET not in doors.stack.output()


def _inspected(host: str) -> str:
    """Return what the engine shows of all its containers."""
    ids = subprocess.run(["docker", "-H", host, "ps", "-aq"], capture_output=True, text=True, check=True).stdout
    assert ids
    shown = ["docker", "-H", host, "inspect", *ids.split()]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout
