"""Gives a home in a volume to its workspace's user. Needed for volumes from before each workspace had its own user.

Runs a short-lived container of the empty image that contains only CodeHub's Python and the volume.
"""

from __future__ import annotations

from codehub.adapters.docker.engine import Engine
from codehub.adapters.docker.volume_copy import FOLDER, OWNER, empty_image
from codehub.adapters.workspace_tools import PYTHON
from codehub.domain.errors import Transient

_ROLE = "own"
_TIMEOUT_S = 3600.0
# The top directory comes last, as in `own`: after an interrupted run, it still belongs to another user.
_SCRIPT = """
import os, sys
top, uid = sys.argv[1], int(sys.argv[2])
if os.stat(top).st_uid != uid:
    for folder, folders, files, fd in os.fwalk(top, topdown=False):
        for name in (*folders, *files):
            os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    os.chown(top, uid, uid)
"""


async def own_volume(
    engine: Engine, workspace_id: str, volume: str, uid: int, tools: list[dict[str, object]]
) -> None:
    found = await engine.get(f"volumes/{volume}")
    if found is None or (found.get("Labels") or {}).get(OWNER) == str(uid):
        return
    for left in await engine.get("containers/json", all="true", filters=engine.filters(_ROLE, workspace_id)):
        await engine.remove(f"containers/{left['Id']}", force="true")
    home = {"Type": "volume", "Source": volume, "Target": f"/{FOLDER.decode()}", "VolumeOptions": {"NoCopy": True}}
    config = {
        "Image": await empty_image(engine),
        "Entrypoint": [PYTHON, "-I", "-S", "-c", _SCRIPT, f"/{FOLDER.decode()}", str(uid)],
        "Labels": engine.labels(workspace_id, _ROLE),
        "User": "0:0",
        "NetworkDisabled": True,
        "HostConfig": {
            "NetworkMode": "none",
            "Mounts": [home, *tools],
            "CapDrop": ["ALL"],
            "CapAdd": ["CHOWN", "DAC_OVERRIDE"],
            "SecurityOpt": ["no-new-privileges:true"],
        },
    }
    name = f"codehub-ws-{workspace_id}-own"
    made = (await engine.send("POST", "containers/create", config, params={"name": name}))["Id"]
    try:
        await engine.send("POST", f"containers/{made}/start", timeout_s=120)
        ended = await engine.send("POST", f"containers/{made}/wait", timeout_s=_TIMEOUT_S)
        if ended["StatusCode"] != 0:
            raise Transient(f"the volume {volume} could not be given to its workspace's user")
    finally:
        await engine.remove(f"containers/{made}", force="true")
