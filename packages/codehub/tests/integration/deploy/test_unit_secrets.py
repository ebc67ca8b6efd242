"""What a workspace sees of CodeHub's secrets when it is started as the coordinator's unit says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codehub.cli.credential_file import load_credentials
from codehub.domain.errors import Invalid
from testing.codehub.edge import DEPLOY

GROUP = 64_998  # stands for the group `codehub`, which this machine does not have
ATTACK = """import asyncio, sys
from pathlib import Path
from codehub.ports.fence import ignore_progress, no_fence
from testing.codehub.contracts.instances import healthy, wid
from testing.codehub.processes import make_world
async def main():
    world = make_world(Path(sys.argv[1]), bwrap=True)
    spec = await world.spec(wid(31))
    await world.instances.start(spec, ignore_progress, no_fence)
    try:
        await healthy(world, spec)
        print(await world.ask(wid(31), sys.argv[2]))
    finally:
        await world.instances.delete(wid(31), no_fence)
asyncio.run(main())
"""


def _capabilities() -> str:
    lines = (DEPLOY / "systemd/codehub-coordinator.service").read_text().splitlines()
    names = [
        word for line in lines if line.startswith("CapabilityBoundingSet=") for word in line.partition("=")[2].split()
    ]
    assert "CAP_SYS_MODULE" not in names
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])


@pytest.mark.xdist_group("ide")
@pytest.mark.needs("bwrap", "slirp4netns", "root")
def test_a_workspace_started_with_the_units_rights_reads_no_secret(tmp_path: Path) -> None:
    """The unit's uid, group, capabilities and NoNewPrivileges; the secrets are files that its group may read."""
    base = Path("/var/tmp") / f"codehub-units-{os.getpid()}"
    secrets = [Path(f"/etc/codehub-{os.getpid()}.env"), Path(f"/opt/codehub-{os.getpid()}.env")]
    base.mkdir(mode=0o711)
    try:
        for path in secrets:
            path.write_text("the secret")
            os.chown(path, 0, GROUP)
            path.chmod(0o640)
        look = f"id; cat {' '.join(map(str, secrets))}; grep -r 'the secret' /etc /opt /run; env"
        rights = [
            "--reuid=0",
            f"--regid={GROUP}",
            "--clear-groups",
            "--no-new-privs",
            f"--bounding-set={_capabilities()}",
        ]
        done = subprocess.run(
            ["setpriv", *rights, sys.executable, "-c", ATTACK, str(base), look],
            capture_output=True,
            text=True,
            timeout=180,
            env={**os.environ, "CODEHUB_DATABASE_URL": "the secret", "CREDENTIALS_DIRECTORY": "/etc"},
        )
        assert done.returncode == 0, done.stderr
        assert "(coder)" in done.stdout
        assert "the secret" not in done.stdout
        assert str(GROUP) not in done.stdout
    finally:
        for path in secrets:
            path.unlink(missing_ok=True)
        subprocess.run(["rm", "-rf", base], check=True)


def test_a_credential_fills_the_environment_and_does_not_overrule_it(tmp_path: Path) -> None:
    (tmp_path / "codehub.env").write_text(
        "# a comment\n\nCODEHUB_LOG_LEVEL='debug'\nAWS_SECRET_ACCESS_KEY=a=b\nHOME=/x\n"
    )
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path), "HOME": "/root"}
    load_credentials(environment)
    assert environment["CODEHUB_LOG_LEVEL"] == "debug"
    assert environment["AWS_SECRET_ACCESS_KEY"] == "a=b"
    assert environment["HOME"] == "/root"


def test_a_credential_that_is_not_assignments_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "codehub.env").write_text("CODEHUB_LOG_LEVEL=debug\nnonsense\n")
    with pytest.raises(Invalid, match="line 2"):
        load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)})
