"""Logins for registries, from a file as `docker login` writes it. It is read each time: it may be renewed at any moment."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codehub.domain.errors import Invalid

_SETTING = "CODEHUB_REGISTRY_AUTH_FILE"


@dataclass(frozen=True, slots=True)
class RegistryLogins:
    file: Path | None = None

    def of(self, registry: str) -> str:
        """Return `user:password` in base64, empty if there is none. Raises Invalid if the file cannot be used."""
        if self.file is None:
            return ""
        for name, entry in _logins(self.file).items():
            if _host_of(name) == registry.lower():
                return _encoded(registry, entry)
        return ""


def _logins(file: Path) -> Mapping[str, object]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise Invalid(f"{_SETTING} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise Invalid(f"{_SETTING} is not JSON") from None
    logins = document.get("auths", {}) if isinstance(document, dict) else None
    if not isinstance(logins, dict):
        raise Invalid(f'{_SETTING} is not a file of `docker login`: it has no object "auths"')
    return logins


def _host_of(name: str) -> str:
    """`docker login` once wrote URLs."""
    return re.sub(r"^https?://", "", name).partition("/")[0].lower()


def _encoded(registry: str, entry: object) -> str:
    login = entry.get("auth") if isinstance(entry, dict) else None
    try:
        plain = base64.b64decode(login, validate=True) if isinstance(login, str) else b""
    except (binascii.Error, ValueError):
        plain = b""
    if not plain.partition(b":")[2]:
        raise Invalid(f"{_SETTING} has no user and password for {registry}; credential helpers are not supported")
    return base64.b64encode(plain).decode()
