"""Parses and formats image references: `[registry[:port]/]repository[:tag][@digest]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from codehub.domain.errors import Invalid

_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
_LONGEST = 512  # the width of the database column


@dataclass(frozen=True, slots=True)
class ImageRef:
    """`registry` is empty for the engine's default registry; `tag` is empty if only a digest was given."""

    registry: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """The reference without tag and digest."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository


def parse_image(text: str) -> ImageRef:
    """Parse a reference, or raise Invalid. Without tag and digest, the tag is `latest`."""
    if len(text) > _LONGEST:
        raise Invalid(f"an image reference has at most {_LONGEST} characters")
    rest, at, digest = text.partition("@")
    first, slash, below = rest.partition("/")
    # The first part is a registry if it could be a host: it contains a dot or a port, or is localhost.
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, below) if is_host else ("", rest)
    repository, colon, tag = path.partition(":")
    valid = (
        (not registry or _REGISTRY.fullmatch(registry))
        and _REPOSITORY.fullmatch(repository)
        and (not colon or _TAG.fullmatch(tag))
        and (not at or _DIGEST.fullmatch(digest))
    )
    if not valid:
        raise Invalid(f"{text!r} is not an image reference: [registry[:port]/]name[:tag][@digest]")
    return ImageRef(registry, repository, tag or ("" if digest else "latest"), digest)


def is_allowed(image: ImageRef, globs: Iterable[str]) -> bool:
    """Return whether a glob (`ghcr.io/team/*`, `*:stable`) matches the image, with or without its tag and digest."""
    forms = {image.name, str(image), str(ImageRef(image.registry, image.repository, image.tag, ""))}
    return any(fnmatchcase(form, glob) for glob in globs for form in forms)
