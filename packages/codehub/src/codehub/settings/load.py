"""Reads the settings from the environment, over an optional TOML file (`CODEHUB_CONFIG_FILE`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from codehub.domain.errors import Invalid
from codehub.settings.model import Settings

NAMES: Mapping[str, str] = {field.alias or name: name for name, field in Settings.model_fields.items()}
_PASSWORD_IN_URL = re.compile(r"(?<=:)[^:@/]*(?=@)")
_NEVER_SHOWN = ("CODEHUB_ADMIN_PASSWORD", "CODEHUB_TRUSTED_PROXY_SECRET", "CODEHUB_SECRETS_KEY")


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Load settings from an environment and the file it names. Raises Invalid with the variable and what was expected."""
    values: dict[str, Any] = {}
    if path := environment.get("CODEHUB_CONFIG_FILE"):
        values.update(_from_file(Path(path)))
    # An empty variable counts as unset, which is how users disable things in unit and compose files.
    values.update({name: environment[name] for name in NAMES if environment.get(name)})
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise Invalid("\n".join(_explain(problem, values) for problem in error.errors())) from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"CODEHUB_CONFIG_FILE={path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"CODEHUB_CONFIG_FILE={path}: not a TOML file: {error}") from error
    if unknown := sorted(set(content) - set(NAMES)):
        raise Invalid(f"CODEHUB_CONFIG_FILE={path}: no such setting: {', '.join(unknown)}")
    return {name: value if isinstance(value, int | float | bool) else _text(value) for name, value in content.items()}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _explain(problem: Any, values: Mapping[str, Any]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    shown = "…" if name in _NEVER_SHOWN else _PASSWORD_IN_URL.sub("…", repr(values.get(name)))
    return f"{name}={shown}: {message}"
