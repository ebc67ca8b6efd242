"""Image references: `[registry[:port]/]repository[:tag][@digest]`, taken apart and put together. Pure."""

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
_LONGEST = 512  # the column's width


@dataclass(frozen=True, slots=True)
class ImageRef:
    """`registry` is empty for the engine's default one; `tag` is empty when there is a digest and none was given."""

    registry: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """Without tag and digest."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository


def parse_image(text: str) -> ImageRef:
    """Invalid when it is no reference. Without tag and digest the tag is `latest`, as everywhere."""
    if len(text) > _LONGEST:
        raise Invalid(f"an image reference has at most {_LONGEST} characters")
    rest, at, digest = text.partition("@")
    first, slash, below = rest.partition("/")
    # The first part is a registry when it could be a host: it has a dot or a port, or is localhost.
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
    """Whether one of the globs (`ghcr.io/team/*`, `*:stable`) matches it, with or without its tag and digest."""
    forms = {image.name, str(image), str(ImageRef(image.registry, image.repository, image.tag, ""))}
    return any(fnmatchcase(form, glob) for glob in globs for form in forms)
