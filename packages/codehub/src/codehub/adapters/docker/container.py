"""Builds a container's configuration: hardened, no published ports, with the start's directory and CodeHub's tools.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codehub.adapters.docker.images import Ide, ImageInfo
from codehub.adapters.docker.seccomp_profile import seccomp_option
from codehub.adapters.docker.start_dirs import HOME, IDE_SOCKET, INSIDE
from codehub.adapters.docker.tools import IDE_PLACE
from codehub.adapters.health import filled
from codehub.adapters.workspace_tools import PLACE, PYTHON
from codehub.adapters.workspaced_launch import LAUNCH_NAME, SOCKET_NAME, Launch, from_file, words
from codehub.domain.errors import Terminal
from codehub.domain.routing import workspace_path
from codehub.ports.instances import InstanceSpec, MountKind

# Node and npm of the IDE that CodeHub brings along.
_BROUGHT_PROGRAMS = f"{IDE_PLACE}/node/bin"
# Programs of profiles that CodeHub can provide in an image that lacks them.
BROUGHT = {"code-server": f"{IDE_PLACE}/bin/code-server"}


@dataclass(frozen=True, slots=True)
class DockerLimits:
    memory_bytes: int = 4 << 30
    cpus: float = 2.0
    pids: int = 2048
    grace_s: int = 10

    def __str__(self) -> str:
        return f"{self.memory_bytes}/{self.cpus}/{self.pids}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the IDE of one start is run and reached."""

    command: tuple[str, ...]
    brings_ide: bool
    bridged: bool  # it listens on a port only; `workspaced` forwards a socket to it


def plan_of(spec: InstanceSpec, image: ImageInfo) -> Plan:
    """Plan how to run the IDE.

    The profile's default image and images with a label that says how their IDE listens run their own command. Any other
    image is only the environment for the profile's IDE, which CodeHub provides.
    """
    if image.ide is not Ide.NONE or spec.profile.own_image:
        if not image.command:
            raise Terminal(f"the image {spec.image} has no command to start")
        return Plan(image.command, brings_ide=False, bridged=image.ide is not Ide.SOCKET)
    program = BROUGHT.get(spec.profile.command[0]) if spec.profile.command else None
    if program is None:
        raise Terminal(
            f"the image {spec.image} has no IDE (no label codehub.ide), and the profile {spec.profile.name!r} has none "
            f"that can be brought along; those are {', '.join(BROUGHT)}"
        )
    command = (program, *spec.profile.command[1:])
    return Plan(command, brings_ide=True, bridged=not any("{socket}" in word for word in command))


def launch_of(spec: InstanceSpec, plan: Plan, secret: str, owner: str) -> Launch:
    port = spec.profile.port
    return Launch(
        home=HOME,
        runtime=INSIDE,
        listen=f"unix:{INSIDE}/{SOCKET_NAME}",
        secret=secret,
        hidden_ports=(port,) if plan.bridged else (),
        bridge=(f"{INSIDE}/{IDE_SOCKET}", port) if plan.bridged else None,
        ide=port if plan.bridged else f"{INSIDE}/{IDE_SOCKET}",
        awaits_environment=spec.awaits_environment,
        in_image=True,
        owner=owner,
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the configuration that the workspace does not choose."""

    labels: Mapping[str, str]
    network: str
    user: str  # uid:gid
    limits: DockerLimits
    mounts: Sequence[dict[str, object]]
    shell: str
    sysctls: Mapping[str, str]
    machine: str  # as of `uname -m`, or empty if the engine cannot filter system calls


def container_config(spec: InstanceSpec, plan: Plan, secret: str, around: Surroundings) -> dict[str, object]:
    profile, limits = spec.profile, around.limits
    memory = spec.size.memory_bytes or limits.memory_bytes
    values = {
        "port": str(profile.port),
        "socket": f"{INSIDE}/{IDE_SOCKET}",
        "base_path": workspace_path(spec.workspace_id),
        "home": HOME,
        "id": spec.workspace_id,
        "secret": secret,
    }
    command = [filled(word, values) for word in plan.command] if plan.brings_ide else plan.command
    started = words(PYTHON, f"{PLACE}/workspaced", command)
    return {
        "Image": spec.image,
        "Entrypoint": started[: -len(command)],
        "Cmd": list(command),
        "Env": [f"{key}={value}" for key, value in _environment(spec, plan, values, around.shell).items()],
        "User": around.user,
        "WorkingDir": HOME,
        "Labels": dict(around.labels),
        "HostConfig": {
            "Init": True,
            "Mounts": [_home(spec), *around.mounts],
            "NetworkMode": around.network,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true", *seccomp_option(around.machine)],
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": int((spec.size.cpus or limits.cpus) * 1e9),
            "PidsLimit": limits.pids,
            "Sysctls": dict(around.sysctls),
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "8m", "max-file": "2"}},
        },
    }


def _environment(spec: InstanceSpec, plan: Plan, values: dict[str, str], shell: str) -> dict[str, str]:
    """Merge the environment. The template's variables never replace ours or those that the profile needs to run."""
    env = {
        "HOME": HOME,
        "USER": "coder",
        "LOGNAME": "coder",
        "SHELL": shell,
        "CODEHUB_WORKSPACE_ID": values["id"],
        "CODEHUB_BASE_PATH": values["base_path"],
        "CODEHUB_PORT": values["port"],
        "CODEHUB_SOCKET": values["socket"],
    }
    if plan.brings_ide:
        env["CODEHUB_PROGRAMS"] = _BROUGHT_PROGRAMS
    own = {key: filled(value, values) for key, value in spec.profile.env.items()}
    return dict(spec.env) | env | own | from_file(f"{INSIDE}/{LAUNCH_NAME}")


def _home(spec: InstanceSpec) -> dict[str, object]:
    mount: dict[str, object] = {"Target": HOME, "Source": spec.mount.source}
    if spec.mount.kind is MountKind.VOLUME:
        return mount | {"Type": "volume", "VolumeOptions": {"NoCopy": True}}
    return mount | {"Type": "bind"}
