"""The variables of a start that everything in the workspace gets. Imports nothing: a start waits for it."""

from __future__ import annotations

import os

_SHM = "/dev/shm"  # noqa: S108 - a tmpfs; only this user can access the folder


def git_config_path(runtime: str) -> str:
    return os.path.join(runtime, "gitconfig")


def for_git(runtime: str) -> dict[str, str]:
    """Return git's and OpenSSH's variables.

    Git reads the file after the user's own configuration (git 2.31).
    """
    return {
        "SSH_AUTH_SOCK": os.path.join(runtime, "agent.sock"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "include.path",
        "GIT_CONFIG_VALUE_0": git_config_path(runtime),
    }


def secrets_folder(runtime: str, name: str) -> str:
    """Return a folder on a tmpfs for this start."""
    root = _SHM if os.access(_SHM, os.W_OK) else runtime
    return os.path.join(root, f"codehub-{name}")
