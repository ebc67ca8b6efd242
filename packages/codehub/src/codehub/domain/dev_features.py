"""Features of devcontainer.json: their options, how and in which order they are installed. Pure.

A feature's `install.sh` runs as root while the image is built. What a feature requests of the container beyond that
(mounts, privileges, an entry point) is never allowed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from codehub.domain.errors import Invalid
from codehub.domain.jsonc import parse_jsonc

METADATA, INSTALL = "devcontainer-feature.json", "install.sh"
MOST_FEATURES = 20  # with those that others depend on
_MOST_OPTIONS = 100
_MOST_AFTER = 100
_LONGEST_METADATA = 32 << 10  # twenty of them are parsed at once. Real ones have some kilobytes
_LONGEST_VALUE = 4096
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NOT_APPLIED = (
    "mounts",
    "privileged",
    "capAdd",
    "securityOpt",
    "init",
    "entrypoint",
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
    """`key` as devcontainer.json names it; `options` and `env` as variables; `ignored` has no effect.

    `origin` is where it came from, with its digest if that is a registry. `needs` are the identities of those that
    `depends_on` names.
    """

    key: str
    id: str
    files: Mapping[str, File]
    options: Mapping[str, str]
    env: Mapping[str, str]
    installs_after: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    origin: str = ""
    depends_on: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    needs: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """Two requests for the same feature with the same options are one."""
        return f"{self.origin or self.key} {json.dumps(dict(self.options), sort_keys=True)}"


def read_feature(key: str, given: object, files: Mapping[str, File], origin: str = "") -> Feature:
    """Raises Invalid if the folder holds no feature, or if an option is not one of its own."""
    if METADATA not in files or INSTALL not in files:
        raise Invalid(f"{key} holds no {METADATA} and {INSTALL}")
    if len(files[METADATA].content) > _LONGEST_METADATA:
        raise Invalid(f"{key}/{METADATA} is larger than {_LONGEST_METADATA >> 10} KiB")
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
    if not isinstance(after, list):
        after = []
    if len(after) > _MOST_AFTER:
        raise Invalid(f"{key}: installsAfter has at most {_MOST_AFTER} features")
    needs = document.get("dependsOn", {})
    if not isinstance(needs, dict) or len(needs) > MOST_FEATURES:
        raise Invalid(f"{key}: dependsOn is an object of at most {MOST_FEATURES} features")
    return Feature(
        key=key,
        id=str(document.get("id", "")) or key.rsplit("/", 1)[-1],
        files=files,
        options=_options(key, known, given),
        env={name: _one_line(key, value) for name, value in env.items()},
        installs_after=tuple(each for each in after if isinstance(each, str)),
        ignored=tuple(name for name in _NOT_APPLIED if document.get(name)),
        origin=origin,
        depends_on=MappingProxyType(needs),
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
        choices = declared.get("enum") if isinstance(declared, dict) else None
        if isinstance(choices, list) and value not in choices:
            raise Invalid(f"{key}: the option {name!r} is one of {', '.join(map(str, choices))}")
        found[_variable(name)] = _one_line(key, text)
    return found


def _variable(option: str) -> str:
    """Return the variable of an option, as the specification of features names it."""
    return re.sub(r"^[\d_]+", "_", re.sub(r"[^\w]", "_", option, flags=re.ASCII)).upper()


def _one_line(key: str, value: str) -> str:
    if len(value) > _LONGEST_VALUE or not value.isprintable():
        raise Invalid(f"{key}: a value is longer than {_LONGEST_VALUE} characters or not one line")
    return value


def in_order(features: Sequence[Feature], first: Sequence[str] = ()) -> list[Feature]:
    """Order them by `dependsOn` (must) and `installsAfter` (if it can be); otherwise as they are listed.

    `first` is `overrideFeatureInstallOrder`. Raises Invalid if features depend on each other in a circle.
    """
    wanted = [_bare(name) for name in first]
    places = {name: place for place, name in reversed(list(enumerate(wanted)))}
    left = sorted(features, key=lambda feature: places.get(_bare(feature.key), len(wanted)))
    ordered: list[Feature] = []
    while left:
        waiting = {feature.identity for feature in left}
        possible = [feature for feature in left if not feature.needs & waiting]
        if not possible:
            raise Invalid(f"the feature {left[0].key} depends on itself")
        ids = {feature.id for feature in left}
        ready = [f for f in possible if not ({_bare(each) for each in f.installs_after} - {f.id}) & ids]
        needed = [f for f in possible if any(f.identity in other.needs for other in left)]
        take = (ready or needed or possible)[0]
        left.remove(take)
        ordered.append(take)
    return ordered


def _bare(name: str) -> str:
    """Return the last part of a feature's name, without its version: what others call it in their order."""
    return name.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


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
