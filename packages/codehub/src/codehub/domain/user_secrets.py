"""Users' secrets and git credentials: accepted names, hosts and sizes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from codehub.domain.environment_names import changes_every_program, is_own, is_variable_name
from codehub.domain.errors import Invalid
from codehub.domain.repository import parse_url

MAX_SECRETS = 100
MAX_CREDENTIALS = 100
ENV_BYTES = 8 << 10
FILE_BYTES = 64 << 10
# For all secrets of a user: the kernel rejects a larger environment, and the files are in memory.
ALL_ENV_BYTES = 32 << 10
ALL_FILE_BYTES = 1 << 20
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class SecretKind(StrEnum):
    ENV = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class UserSecret:
    """A secret without its value, which is never shown again."""

    name: str
    kind: SecretKind
    bytes: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GitCredential:
    """A git credential without its token."""

    id: str
    scheme: str
    host: str
    username: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class GitKey:
    public_key: str
    fingerprint: str
    created_at: datetime


def check_secret(name: str, kind: SecretKind, value: bytes) -> None:
    """Raise Invalid, with what to do, if the secret cannot be stored."""
    if kind is SecretKind.FILE:
        if not _FILE_NAME.fullmatch(name):
            raise Invalid("name: letters, digits, dots, dashes and underscores, at most 128")
    elif not is_variable_name(name):
        raise Invalid("name: a variable has letters, digits and underscores, and does not begin with a digit")
    elif is_own(name):
        raise Invalid(f"name: {name} is set by CodeHub itself: choose another")
    elif changes_every_program(name):
        raise Invalid(f"name: {name} would change every program in your workspaces: choose another")
    most = FILE_BYTES if kind is SecretKind.FILE else ENV_BYTES
    if len(value) > most:
        hint = "" if kind is SecretKind.FILE else f"; as a file it may have {FILE_BYTES >> 10} KiB"
        raise Invalid(f"value: at most {most >> 10} KiB, and this has {len(value)} bytes{hint}")
    if not value:
        raise Invalid("value: must not be empty; remove the secret instead")
    if kind is SecretKind.ENV:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise Invalid("value: an environment variable is text; keep binary data as a file") from None
        if "\0" in text:
            raise Invalid("value: an environment variable cannot hold NUL; keep it as a file")


def parse_git_host(text: str) -> tuple[str, str]:
    """Return (scheme, host[:port]) of `github.com`, `git.example.org:8443` or a repository's URL."""
    url = text if "://" in text else f"https://{text}"
    found = parse_url(f"{url.rstrip('/')}/any/repository")
    if found.uses_ssh:
        raise Invalid("host: SSH uses your key instead: `codehub git-auth key` shows its public half")
    return found.scheme, found.host


def check_token(username: str, token: str) -> None:
    for name, value, most in (("username", username, 255), ("token", token, 8192)):
        if not value or len(value) > most or any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise Invalid(f"{name}: 1 to {most} characters without control characters")
