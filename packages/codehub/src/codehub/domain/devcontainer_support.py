"""Which properties of devcontainer.json have no effect in a workspace, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Unsupported(StrEnum):
    """The reason why a property in the file has no effect."""

    NEEDS_CONTAINER = "needs a container: workspaces run as processes here"
    NOT_ALLOWED = "is not allowed in workspaces"
    HOST_SIDE = "would run on the host, which a repository may not do"
    COMPOSE = "Docker Compose projects are not supported"
    OWN_VARIABLE = "is set by CodeHub; PATH can be extended with ${containerEnv:PATH}"
    OWN_USER = "has no effect: programs in a workspace run as coder"
    OWN_COMMAND = "has no effect: CodeHub starts the IDE instead of the image's own command"
    ATTACH = "is not run, because CodeHub does not notice when an editor connects: use postStartCommand"
    WAIT = "has no effect: the IDE opens while the commands run"
    SLEEP = "has no effect: the workspace goes to sleep when it is idle"
    SHELL = "has no effect: no shell is started to read variables from its startup files; use remoteEnv"
    SIZE = "has no effect: the template decides on the size"
    FOLDER = "has no effect: the clone is in the home, where ${containerWorkspaceFolder} names it"
    LOCAL_VARIABLE = "is empty: there is no local machine to take it from; use a secret"
    MISSING = "is not set: add it with `codehub secrets set` or on your account page"
    OTHER_TOOL = "is for another tool"
    EVERY_PORT = "has no effect: every port that listens is listed, and none opens by itself"
    HTTP = "has no effect: CodeHub connects to ports without TLS"
    LOCAL_PORT = "has no effect: no port of your own machine is used"
    PORT_PATTERN = "has no effect: only single ports can have a label"
    UNKNOWN = "is not known"


_NEVER_ALLOWED = ("mounts", "runArgs", "privileged", "capAdd", "securityOpt", "workspaceMount", "appPort", "gpu")
_REASONS = {
    **dict.fromkeys(_NEVER_ALLOWED, Unsupported.NOT_ALLOWED),
    **dict.fromkeys(("dockerComposeFile", "service", "runServices"), Unsupported.COMPOSE),
    "initializeCommand": Unsupported.HOST_SIDE,
    "postAttachCommand": Unsupported.ATTACH,
    "waitFor": Unsupported.WAIT,
    "shutdownAction": Unsupported.SLEEP,
    "userEnvProbe": Unsupported.SHELL,
    "updateRemoteUserUID": Unsupported.OWN_USER,
    "hostRequirements": Unsupported.SIZE,
    "workspaceFolder": Unsupported.FOLDER,
    # `options` are arguments of the host's `docker build`, `cacheFrom` names images that the engine would pull.
    "build.options": Unsupported.NOT_ALLOWED,
    "build.cacheFrom": Unsupported.NOT_ALLOWED,
}
# `init` and `overrideCommand` request what every workspace has: an init process, and another command than the image's.
_WITHOUT_EFFECT = frozenset({"$schema", "name", "init", "overrideCommand"})
_NOTHING: tuple[object, ...] = (None, False, "", [], {})


def unsupported(left: Mapping[str, object], within: str = "") -> list[tuple[str, Unsupported]]:
    """Return the properties that nothing was made of, with the reason, unless they request nothing.

    `within` is the object that contains them, such as "build."
    """
    found = [
        (within + key, _REASONS.get(within + key, Unsupported.UNKNOWN))
        for key, value in left.items()
        if within + key not in _WITHOUT_EFFECT and value not in _NOTHING
    ]
    if not within and left.get("overrideCommand") is False:
        found.append(("overrideCommand", Unsupported.OWN_COMMAND))
    return found
