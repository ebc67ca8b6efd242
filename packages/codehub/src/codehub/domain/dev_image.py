"""The image that devcontainer.json requests: what is pulled or built, and what a workspace runs with. Pure."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from codehub.domain.dev_features import MOST_FEATURES, Feature, File, install_lines, read_feature
from codehub.domain.devcontainer import DevContainer
from codehub.domain.dockerfile import Recipe, check_dockerfile
from codehub.domain.errors import Invalid
from codehub.domain.feature_refs import FeatureRules, is_local, locked_digests, pinned
from codehub.domain.images import parse_image

_USER, _HOME = "coder", "/home/coder"


@dataclass(frozen=True, slots=True)
class DevImage:
    """What a workspace runs with instead of its template's image. `bases` must be allowed at every start.

    `ignored` is what its features request without effect: a feature and a key of its metadata.
    """

    digest: str
    ref: str
    bases: tuple[str, ...]
    ignored: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pull:
    digest: str
    image: str

    @property
    def bases(self) -> tuple[str, ...]:
        return (self.image,)

    @property
    def title(self) -> str:
        return f"Use the image {self.image}"


@dataclass(frozen=True, slots=True)
class Build:
    """`context` is a folder of the clone, relative to the home; None if features are added to an image as it is.

    `digest` follows from what the repository says. A feature's version in a registry is looked up when the image is built,
    as the tag of a base image is, so nobody asks a registry when a workspace wakes up.
    """

    digest: str
    recipe: Recipe
    context: str | None
    args: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    features: Features = field(default_factory=lambda: Features())

    @property
    def bases(self) -> tuple[str, ...]:
        return self.recipe.bases

    @property
    def title(self) -> str:
        return "Build the image of devcontainer.json"

    @property
    def ignored(self) -> list[tuple[str, str]]:
        """What local features request without effect. Of others it is known when they were fetched."""
        local = self.features.local
        found = [read_feature(key, self.features.wanted[key], files) for key, files in local.items()]
        return [(feature.key, name) for feature in found for name in feature.ignored]


@dataclass(frozen=True, slots=True)
class Features:
    """What devcontainer.json requests: options by key, the folders of local ones, and digests from the lock file."""

    wanted: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    local: Mapping[str, Mapping[str, File]] = field(default_factory=lambda: MappingProxyType({}))
    locked: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    first: tuple[str, ...] = ()


def feature_lines(base: str, features: Sequence[Feature]) -> str:
    """Return the Dockerfile that adds the features to an image. Their folders are numbered in its context."""
    return "\n".join([f"FROM {base}", *install_lines(features, _USER, _HOME)]) + "\n"


def feature_files(features: Sequence[Feature]) -> dict[str, File]:
    return {
        f"{number}/{path}": file for number, feature in enumerate(features) for path, file in feature.files.items()
    }


Plan = Pull | Build


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a build are, relative to the home."""

    dockerfile: str = ""
    context: str = ""
    features: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def places_of(wanted: DevContainer, clone: str, file: str) -> Places:
    """Return which files a plan needs. `file` is the devcontainer.json's path in the clone. Raises Invalid."""
    folder = posixpath.dirname(file)
    if len(wanted.features) > MOST_FEATURES:
        raise Invalid(f"has more than {MOST_FEATURES} features")
    return Places(
        dockerfile=_inside(clone, folder, wanted.dockerfile) if wanted.dockerfile else "",
        context=_inside(clone, folder, wanted.build_context) if wanted.dockerfile else "",
        features={key: _inside(clone, folder, key) for key in wanted.features if is_local(key)},
    )


def _inside(clone: str, folder: str, path: str) -> str:
    found = posixpath.normpath(posixpath.join(folder, path))
    if path.startswith("/") or found.startswith(("../", "/")) or found == ".." or not path.isprintable():
        raise Invalid(f"{path} leads out of the repository")
    return posixpath.normpath(posixpath.join(clone, found))


def plan_image(
    wanted: DevContainer,
    places: Places,
    dockerfile: str,
    local: Mapping[str, Mapping[str, File]],
    lock: bytes,
    rules: FeatureRules,
) -> Plan:
    """Return what is to be done for the image. Raises Invalid if the file or a feature is not allowed or has an error."""
    if not wanted.dockerfile and not wanted.features:
        # The engine gets the name that is checked: it would take some texts for an image's id.
        return Pull(_digest("pull", wanted.image), str(parse_image(wanted.image)))
    if wanted.dockerfile:
        recipe = check_dockerfile(dockerfile, wanted.build_args, wanted.build_target)
    elif wanted.image:
        recipe = check_dockerfile(f"FROM {wanted.image}", {})
    else:
        raise Invalid("features need an image or a Dockerfile that they are added to")
    features = Features(wanted.features, local, locked_digests(lock), wanted.features_first)
    parts: list[str] = []
    for key, given in wanted.features.items():
        if is_local(key):
            parts += _feature_parts(read_feature(key, given, local[key]))
        else:
            rules.check(pinned(key, features.locked))
            parts += [key, json.dumps(given, sort_keys=True)]
    digest = _digest(
        "build",
        recipe.text,
        json.dumps(dict(wanted.build_args), sort_keys=True),
        places.context,
        *parts,
        *wanted.features_first,
        hashlib.sha256(lock).hexdigest(),
    )
    return Build(digest, recipe, places.context or None, wanted.build_args, features)


def _feature_parts(feature: Feature) -> list[str]:
    files = [f"{path} {hashlib.sha256(file.content).hexdigest()}" for path, file in sorted(feature.files.items())]
    return [feature.key, json.dumps(dict(feature.options), sort_keys=True), *files]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def forbidden_base(bases: tuple[str, ...], check: Callable[[str], object]) -> str:
    """Return why one of the images may not be used here, or an empty text. `check` is the catalog's rule."""
    for base in bases:
        try:
            check(base)
        except Invalid as error:
            return str(error)
    return ""


def encode_dev_image(image: DevImage) -> dict[str, object]:
    ignored = [list(each) for each in image.ignored]
    return {"digest": image.digest, "ref": image.ref, "bases": list(image.bases), "ignored": ignored}


def decode_dev_image(column: Mapping[str, Any] | None) -> DevImage | None:
    if column is None:
        return None
    ignored = tuple((str(feature), str(key)) for feature, key in column.get("ignored", ()))  # absent in older rows
    return DevImage(column["digest"], column["ref"], tuple(column["bases"]), ignored)
