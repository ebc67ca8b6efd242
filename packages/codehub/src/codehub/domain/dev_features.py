"""Features of devcontainer.json that are folders of the repository: their options and how they are installed. Pure.

A feature's `install.sh` runs as root while the image is built. What a feature requests of the container beyond that
(mounts, privileges, an entry point) is never allowed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codehub.domain.errors import Invalid
from codehub.domain.jsonc import parse_jsonc

METADATA, INSTALL = "devcontainer-feature.json", "install.sh"
_MOST_OPTIONS = 100
_LONGEST_VALUE = 4096
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NOT_APPLIED = (
    "mounts",
    "privileged",
    "capAdd",
    "securityOpt",
    "init",
    "entrypoint",
    "dependsOn",
    "customizations",
    "onCreateCommand",
    "updateContentCommand",
    "postCreateCommand",
    "postStartCommand",
)


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """`key` as devcontainer.json names it; `options` and `env` as variables; `ignored` has no effect."""

    key: str
    id: str
    files: Mapping[str, File]
    options: Mapping[str, str]
    env: Mapping[str, str]
    installs_after: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def is_local(key: str) -> bool:
    return key.startswith("./")


def read_feature(key: str, given: object, files: Mapping[str, File]) -> Feature:
    """Raises Invalid if the folder holds no feature, or if an option is not one of its own."""
    if METADATA not in files or INSTALL not in files:
        raise Invalid(f"{key} holds no {METADATA} and {INSTALL}")
    document = parse_jsonc(files[METADATA].content.decode("utf-8", "replace"))
    if not isinstance(document, dict):
        raise Invalid(f"{key}/{METADATA} holds one object")
    known = document.get("options", {})
    if not isinstance(known, dict) or len(known) > _MOST_OPTIONS:
        raise Invalid(f"{key}: options is an object")
    env = document.get("containerEnv", {})
    if not isinstance(env, dict) or not all(_ENV_NAME.fullmatch(k) and isinstance(v, str) for k, v in env.items()):
        raise Invalid(f"{key}: containerEnv holds texts")
    after = document.get("installsAfter", [])
    return Feature(
        key=key,
        id=str(document.get("id", "")) or key.rsplit("/", 1)[-1],
        files=files,
        options=_options(key, known, given),
        env={name: _one_line(key, value) for name, value in env.items()},
        installs_after=tuple(str(each) for each in after) if isinstance(after, list) else (),
        ignored=tuple(name for name in _NOT_APPLIED if document.get(name)),
    )


def _options(key: str, known: Mapping[str, object], given: object) -> dict[str, str]:
    wanted = given if isinstance(given, dict) else {"version": given} if isinstance(given, str) else {}
    if not isinstance(given, dict | str | bool):
        raise Invalid(f"{key}: the options are an object or a version")
    unknown = [name for name in wanted if name not in known]
    if unknown and isinstance(given, dict):
        raise Invalid(f"{key} has no option {unknown[0]!r}")
    found: dict[str, str] = {}
    for name, declared in known.items():
        default = declared.get("default", "") if isinstance(declared, dict) else ""
        value = wanted.get(name, default)
        if not isinstance(value, str | bool):
            raise Invalid(f"{key}: the option {name!r} is a text or a switch")
        text = str(value).lower() if isinstance(value, bool) else value
        found[_variable(name)] = _one_line(key, text)
    return found


def _variable(option: str) -> str:
    """Return the variable of an option, as the specification of features names it."""
    return re.sub(r"^[\d_]+", "_", re.sub(r"[^\w]", "_", option, flags=re.ASCII)).upper()


def _one_line(key: str, value: str) -> str:
    if len(value) > _LONGEST_VALUE or not value.isprintable():
        raise Invalid(f"{key}: a value is longer than {_LONGEST_VALUE} characters or not one line")
    return value


def in_order(features: Sequence[Feature]) -> list[Feature]:
    """Order them by `installsAfter`; otherwise as devcontainer.json lists them. A circle keeps that order."""
    left, ordered = list(features), []
    while left:
        ids = {feature.id for feature in left}
        ready = [f for f in left if not ({each.rsplit("/", 1)[-1] for each in f.installs_after} - {f.id}) & ids]
        take = ready[0] if ready else left[0]
        left.remove(take)
        ordered.append(take)
    return ordered


def install_lines(features: Sequence[Feature], user: str, home: str) -> list[str]:
    """Return the instructions that install the features. Their folders are numbered in the build's context."""
    lines = ["USER root"]
    for number, feature in enumerate(features):
        there = f"/tmp/codehub-features/{number}"  # noqa: S108 - in the image that is built
        names = {
            **feature.options,
            "_REMOTE_USER": user,
            "_CONTAINER_USER": user,
            "_REMOTE_USER_HOME": home,
            "_CONTAINER_USER_HOME": home,
        }
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in names.items())
        script = f"cd {there} && chmod +x {INSTALL} && {given} ./{INSTALL} && cd / && rm -rf {there}"
        lines.append(f"COPY {number} {there}")
        lines.append("RUN " + json.dumps(["/bin/sh", "-c", script]))
        lines += [f"ENV {name}={json.dumps(value, ensure_ascii=False)}" for name, value in feature.env.items()]
    return lines
