"""The image that devcontainer.json requests: what is pulled or built, and what a workspace runs with. Pure."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from codehub.domain.dev_features import Feature, File, in_order, install_lines, is_local, read_feature
from codehub.domain.devcontainer import DevContainer
from codehub.domain.dockerfile import Recipe, check_dockerfile
from codehub.domain.errors import Invalid

_USER, _HOME = "coder", "/home/coder"
LOCK_FILE = "devcontainer-lock.json"


@dataclass(frozen=True, slots=True)
class DevImage:
    """What a workspace runs with instead of its template's image. `bases` must be allowed at every start."""

    digest: str
    ref: str
    bases: tuple[str, ...]


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
    """`context` is a folder of the clone, relative to the home; None if features are added to an image as it is."""

    digest: str
    recipe: Recipe
    context: str | None
    args: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    features: tuple[Feature, ...] = ()

    @property
    def bases(self) -> tuple[str, ...]:
        return self.recipe.bases

    @property
    def title(self) -> str:
        return "Build the image of devcontainer.json"

    def feature_lines(self, base: str) -> str:
        """Return the Dockerfile that adds the features to an image. Their folders are numbered in its context."""
        return "\n".join([f"FROM {base}", *install_lines(self.features, _USER, _HOME)]) + "\n"

    def feature_files(self) -> dict[str, File]:
        return {
            f"{number}/{path}": file
            for number, feature in enumerate(self.features)
            for path, file in feature.files.items()
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
    remote = [key for key in wanted.features if not is_local(key)]
    if remote:
        raise Invalid(
            f"the feature {remote[0]} comes from a registry: only features in the repository (./NAME) are installed"
        )
    return Places(
        dockerfile=_inside(clone, folder, wanted.dockerfile) if wanted.dockerfile else "",
        context=_inside(clone, folder, wanted.build_context) if wanted.dockerfile else "",
        features={key: _inside(clone, folder, key) for key in wanted.features},
    )


def _inside(clone: str, folder: str, path: str) -> str:
    found = posixpath.normpath(posixpath.join(folder, path))
    if path.startswith("/") or found.startswith(("../", "/")) or found == ".." or not path.isprintable():
        raise Invalid(f"{path} leads out of the repository")
    return posixpath.normpath(posixpath.join(clone, found))


def plan_image(
    wanted: DevContainer, places: Places, dockerfile: str, features: Mapping[str, Mapping[str, File]], lock: bytes
) -> Plan:
    """Return what is to be done for the image. Raises Invalid if the file or a feature is not allowed or has an error."""
    if not wanted.dockerfile and not wanted.features:
        return Pull(_digest("pull", wanted.image), wanted.image)
    if wanted.dockerfile:
        recipe = check_dockerfile(dockerfile, wanted.build_args, wanted.build_target)
    elif wanted.image:
        recipe = check_dockerfile(f"FROM {wanted.image}", {})
    else:
        raise Invalid("features need an image or a Dockerfile that they are added to")
    found = tuple(in_order([read_feature(key, wanted.features[key], features[key]) for key in wanted.features]))
    digest = _digest(
        "build",
        recipe.text,
        json.dumps(dict(wanted.build_args), sort_keys=True),
        places.context,
        *(part for feature in found for part in _feature_parts(feature)),
        hashlib.sha256(lock).hexdigest(),
    )
    return Build(digest, recipe, places.context or None, wanted.build_args, found)


def _feature_parts(feature: Feature) -> list[str]:
    files = [f"{path} {hashlib.sha256(file.content).hexdigest()}" for path, file in sorted(feature.files.items())]
    return [feature.key, json.dumps(dict(feature.options), sort_keys=True), *files]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:40]


def forbidden_base(bases: tuple[str, ...], check: Callable[[str], object]) -> str:
    """Return why one of the images may not be used here, or an empty text. `check` is the catalog's rule."""
    for base in bases:
        try:
            check(base)
        except Invalid as error:
            return str(error)
    return ""


def encode_dev_image(image: DevImage) -> dict[str, object]:
    return {"digest": image.digest, "ref": image.ref, "bases": list(image.bases)}


def decode_dev_image(column: Mapping[str, Any] | None) -> DevImage | None:
    return None if column is None else DevImage(column["digest"], column["ref"], tuple(column["bases"]))
