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


def git_identity(name: str) -> str:
    """Return a git identity, so that commits work at once under the owner's name. `git config --global` overrides it."""
    if not name or not name.isprintable():
        return ""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    # Accounts have no address. An impossible address is clearer than one that might belong to someone.
    email = quoted if "@" in name else f"{quoted}@users.codehub.invalid"
    return f'[user]\n\tname = "{quoted}"\n\temail = "{email}"\n'


def for_git_identity(owner: str, runtime: str) -> dict[str, str]:
    """Return a variable with which git (2.32) reads the identity before the image's and the user's own settings."""
    return {"GIT_CONFIG_SYSTEM": os.path.join(runtime, "gitconfig-system")} if git_identity(owner) else {}


def offer_git_identity(owner: str, runtime: str) -> dict[str, str]:
    """Write the file that the variable names, and return the variable."""
    env = for_git_identity(owner, runtime)
    try:
        for path in env.values():
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"{git_identity(owner)}[include]\n\tpath = /etc/gitconfig\n")
    except OSError:  # a full disk: commits ask for an identity
        return {}
    return env


def secrets_folder(runtime: str, name: str) -> str:
    """Return a folder on a tmpfs for this start."""
    root = _SHM if os.access(_SHM, os.W_OK) else runtime
    return os.path.join(root, f"codehub-{name}")
