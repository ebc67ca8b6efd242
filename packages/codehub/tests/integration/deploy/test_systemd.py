"""The coordinator's unit under a real systemd: what it started goes on when the unit is stopped.

systemd's manager runs in a mount namespace of its own, with nothing but the unit as it is shipped. Taken by `make soak`:
not every container lets it make cgroups.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from testing.codehub.edge import DEPLOY

pytestmark = [pytest.mark.needs("systemd", "root"), pytest.mark.soak]

# In place of the coordinator: starts a process as the process runtime does, in a session of its own, and goes on.
STAND_IN = """import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""
# What needs the machine's own manager, users and files; nothing of it decides what is killed.
LEFT_OUT = re.compile(r"^(User|Group|EnvironmentFile|StateDirectory|Requires|After|Wants)=.*\n", re.M)
SCRIPT = """set -e
mount --make-rprivate /; mount -t tmpfs none /run; mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
/lib/systemd/systemd --user --unit=empty.target --log-target=console & manager=$!
for _ in $(seq 600); do systemctl --user list-units >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user start codehub-coordinator
for _ in $(seq 600); do [ -s "$STARTED" ] && break; sleep 0.1; done
systemctl --user stop codehub-coordinator
if kill -0 "$(cat "$STARTED")" 2>/dev/null; then echo goes on; kill "$(cat "$STARTED")"; else echo is gone; fi
kill $manager
"""


@pytest.mark.parametrize(("kill_mode", "said"), [("process", "goes on"), ("control-group", "is gone")])
def test_what_the_coordinator_started_outlives_its_unit(kill_mode: str, said: str, tmp_path: Path) -> None:
    units = tmp_path / "systemd/user"
    units.mkdir(parents=True)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    shipped = (DEPLOY / "systemd/codehub-coordinator.service").read_text()
    assert "KillMode=process\n" in shipped
    command = f"/usr/bin/python3 {tmp_path / 'stand_in.py'} {tmp_path / 'started'}"
    text = LEFT_OUT.sub("", shipped).replace("/opt/codehub/bin/codehub serve coordinator", command)
    # The other mode shows that systemd would have ended it.
    (units / "codehub-coordinator.service").write_text(text.replace("KillMode=process", f"KillMode={kill_mode}"))
    (units / "empty.target").write_text("[Unit]\nDescription=nothing\n")
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", SCRIPT],
        env={
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": "/run/user/0",
            "XDG_CONFIG_HOME": str(tmp_path),
            "STARTED": str(tmp_path / "started"),
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert said in done.stdout.splitlines(), done
