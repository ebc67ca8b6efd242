"""Secrets on each runtime: in the IDE's environment and in memory; never in the home or in what the engine shows."""

from __future__ import annotations

import subprocess
import time

from testing.codehub.doors import Doors
from testing.codehub.full_stack import PATIENCE_S

_SECRET = "s3cret-of-this-test"


def until_prints(doors: Doors, command: str, wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (said := doors.sh(command)) != wanted:
        assert time.monotonic() < deadline, said
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
            # At once in new commands; by a part of it: what a command prints is kept in the home.
            until_prints(doors, "printenv API_TOKEN | cut -c1-6", "s3cret\n")
            until_prints(doors, 'cut -c1-6 "$CODEHUB_SECRETS_DIR/cert.pem" 2>/dev/null; true', "s3cret\n")
            assert (
                doors.sh('stat -f -c %T "$CODEHUB_SECRETS_DIR"; stat -c %a "$CODEHUB_SECRETS_DIR"') == "tmpfs\n700\n"
            )
            # From the next start on in the IDE itself.
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
    until_prints(doors, 'printenv API_TOKEN; ls "$CODEHUB_SECRETS_DIR"; true', "")
    assert _SECRET not in doors.stack.said()


def _inspected(host: str) -> str:
    """Return what the engine shows of all its containers."""
    ids = subprocess.run(
        ["docker", "-H", host, "ps", "-aq"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert ids
    return subprocess.run(["docker", "-H", host, "inspect", *ids], capture_output=True, text=True, check=True).stdout
