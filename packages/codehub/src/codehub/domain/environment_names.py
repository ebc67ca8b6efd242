"""Environment variables that templates, secrets and repositories may set. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Each runtime sets these itself, or gives git and OpenSSH access to credentials with them.
_OWN = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "SSH_AUTH_SOCK"})
_OWN_BEGINNINGS = ("CODEHUB_", "GIT_CONFIG_")
_LOADER = "LD_"


def is_variable_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Return whether CodeHub sets this variable itself."""
    return name in _OWN or name.startswith(_OWN_BEGINNINGS)


def changes_every_program(name: str) -> bool:
    """Return whether the loader reads this variable: a wrong value would keep every program from starting."""
    return name.startswith(_LOADER)
