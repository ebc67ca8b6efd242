"""Reads profiles from the TOML file named by CODEHUB_PROFILES_FILE. Errors name their location."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from codehub.domain.errors import Invalid
from codehub.domain.images import parse_image
from codehub.domain.profiles import SHIPPED, AppProfile

_log = structlog.get_logger()

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "command": list,
    "image": str,
    "port": int,
    "health_path": str,
    "health_timeout": (int, float),
    "strip_prefix": bool,
    "env": dict,
    "background_traffic": list,
    "activity_path": str,
    "secret_header": str,
    "close_code": int,
    "pages": list,
    "reload_after_wake": bool,
}
_RENAMED: Mapping[str, str] = {"noise": "background_traffic"}
_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_KNOWN = {"port", "socket", "base_path", "home", "id", "secret"}


def load_profiles(path: Path | None, registry: str = "") -> Mapping[str, AppProfile]:
    """Return the built-in profiles and those of the file, which may also replace a built-in one.

    `registry` is where the images of the built-in ones are.
    """
    prefix = f"{registry}/" if registry else ""
    shipped = {name: replace(profile, image=prefix + profile.image) for name, profile in SHIPPED.items()}
    if path is None:
        return MappingProxyType(shipped)
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"CODEHUB_PROFILES_FILE {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"CODEHUB_PROFILES_FILE {path} is not TOML: {error}") from error
    if set(parsed) - {"profiles"} or not isinstance(parsed.get("profiles", {}), dict):
        raise Invalid(f"CODEHUB_PROFILES_FILE {path}: only [profiles.NAME] tables belong in it")
    own = {name: _profile(path, name, table) for name, table in parsed.get("profiles", {}).items()}
    return MappingProxyType({**shipped, **own})


def _profile(path: Path, name: str, table: Any) -> AppProfile:
    where = f"CODEHUB_PROFILES_FILE {path}, [profiles.{name}]"
    if not _NAME.fullmatch(name):
        raise Invalid(f"{where}: a profile's name is lower-case letters, digits, '.', '_' and '-'")
    if not isinstance(table, dict):
        raise Invalid(f"{where}: not a table")
    table = _with_current_names(where, table)
    for key, value in table.items():
        wanted = _FIELDS.get(key)
        if wanted is None:
            raise Invalid(f"{where}: unknown key {key!r}; known are {', '.join(_FIELDS)}")
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise Invalid(f"{where}: {key} is of the wrong type")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise Invalid(f"{where}: {key} is a list of strings")
    env = table.get("env", {})
    if not all(isinstance(value, str) for value in env.values()):
        raise Invalid(f"{where}: env holds strings")
    for text in [*table.get("command", []), *env.values(), table.get("secret_header", "")]:
        for unknown in set(_PLACEHOLDER.findall(text)) - _KNOWN:
            raise Invalid(f"{where}: unknown placeholder {{{unknown}}}; known are {', '.join(sorted(_KNOWN))}")
    profile = AppProfile(
        name=name,
        command=tuple(table.get("command", ())),
        image=table.get("image", ""),
        port=table.get("port", 8080),
        health_path=table.get("health_path", "/"),
        health_timeout_s=float(table.get("health_timeout", 60)),
        strip_prefix=table.get("strip_prefix", True),
        env=MappingProxyType(dict(env)),
        background_traffic=tuple(table.get("background_traffic", ())),
        activity_path=table.get("activity_path"),
        secret_header=table.get("secret_header", ""),
        close_code=table.get("close_code", 1001),
        pages=tuple(table.get("pages", ())),
        reload_after_wake=table.get("reload_after_wake", True),
    )
    _check(where, profile)
    return profile


def _with_current_names(where: str, table: dict[str, Any]) -> dict[str, Any]:
    """Accept renamed keys under their old name for one release."""
    for old, new in _RENAMED.items():
        if old in table and new in table:
            raise Invalid(f"{where}: {old} is the old name of {new}; keep only {new}")
        if old in table:
            _log.warning("deprecated key in the profiles file", profile=where, key=old, use=new)
    return {_RENAMED.get(key, key): value for key, value in table.items()}


def _check(where: str, profile: AppProfile) -> None:
    if not profile.command and not profile.image:
        raise Invalid(f"{where}: needs a command (for processes) or an image (for containers)")
    if profile.image:
        parse_image(profile.image)
    if not 1 <= profile.port <= 65535:
        raise Invalid(f"{where}: port is a number from 1 to 65535")
    if not profile.health_path.startswith("/"):
        raise Invalid(f"{where}: health_path begins with '/'")
    if profile.health_timeout_s <= 0:
        raise Invalid(f"{where}: health_timeout is a number of seconds above 0")
    if not all(page.startswith("/") for page in profile.pages):
        raise Invalid(f"{where}: pages are paths that begin with '/'")
    if profile.secret_header and ":" not in profile.secret_header:
        raise Invalid(f"{where}: secret_header is 'Name: value'")
    # Codes that a server may send according to RFC 6455 7.4 and its registry. 1004 to 1006 and 1015 are never sent.
    if profile.close_code not in {1000, 1001, 1011, 1012, 1013, 1014} and not 3000 <= profile.close_code <= 4999:
        raise Invalid(f"{where}: close_code is 1000, 1001, 1011 to 1014, or 3000 to 4999")
