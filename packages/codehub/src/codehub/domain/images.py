"""Image references, `[registry[:port]/]repository[:tag][@digest]`, and which of them an administrator's glob allows. Pure.

An image has a name here. Engines also take an id (`sha256:…`), which would be any image that they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from codehub.domain.errors import Invalid

_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
# What an engine takes for an id, also if it is shortened.
_ID = re.compile(r"sha(?:256|384|512)|[0-9a-f]{64}")
_DEFAULT = frozenset({"docker.io", "index.docker.io"})
_LONGEST = 512  # the width of the database column
# Images that were built for one workspace. They hold files of its repository.
BUILT = "localhost/codehub-dev-"
# The last label of an IPv4 address, in any notation that a resolver reads.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


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

    @property
    def is_built(self) -> bool:
        return self.name.startswith(BUILT)

    @property
    def is_at_an_address(self) -> bool:
        """Whether its registry is this machine or an address instead of a name."""
        host = re.sub(r":[0-9]+\Z", "", self.registry)
        last = host.rpartition(".")[2].lower()
        return last == "localhost" or host.endswith("]") or _NUMBER.fullmatch(last) is not None


def parse_image(text: str) -> ImageRef:
    """Parse a reference, or raise Invalid. Without tag and digest, the tag is `latest`."""
    if len(text) > _LONGEST:
        raise Invalid(f"an image reference has at most {_LONGEST} characters")
    rest, at, digest = text.partition("@")
    first, _, below = rest.partition("/")
    registry, path = (first, below) if _names_registry(rest) else ("", rest)
    repository, colon, tag = path.partition(":")
    valid = (
        (not registry or _REGISTRY.fullmatch(registry))
        and _REPOSITORY.fullmatch(repository)
        and (registry or not _ID.fullmatch(repository))
        # An engine drops the default registry: `docker.io/localhost/x` is `localhost/x` to it.
        and not (registry in _DEFAULT and _names_registry(repository))
        and (not colon or _TAG.fullmatch(tag))
        and (not at or _DIGEST.fullmatch(digest))
    )
    if not valid:
        raise Invalid(f"{text!r} is not an image reference: [registry[:port]/]name[:tag][@digest]")
    return ImageRef(registry, repository, tag or ("" if digest else "latest"), digest)


def _names_registry(text: str) -> bool:
    """Return whether the first part could be a host: it contains a dot or a port, or is localhost."""
    first, slash, _ = text.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def is_allowed(image: ImageRef, globs: Iterable[str]) -> bool:
    """Return whether a glob (`ghcr.io/team/*`, `*:stable`) matches the image, with or without its tag and digest.

    A glob whose first part could be a host is about that registry. `*` at its beginning stands for every registry with a
    name. Any other one is about the engine's default registry: `python*` means neither `pythonevil/x` nor
    `python.evil.example/x`.
    """
    return any(glob == str(image) or _matches(image, glob) for glob in globs)


def _matches(image: ImageRef, glob: str) -> bool:
    host, slash, rest = glob.partition("/")
    if image.is_at_an_address:
        # The engine would connect to its own machine or network: an administrator writes that out.
        return bool(slash) and host == image.registry and _matches_name(replace(image, registry=""), rest)
    if _names_registry(glob):
        return fnmatchcase(image.registry, host) and _matches_name(replace(image, registry=""), rest)
    if not glob.startswith("*") and (image.registry or (not slash and "/" in image.repository)):
        return False
    return _matches_name(image, glob)


def _matches_name(image: ImageRef, glob: str) -> bool:
    if image.digest:
        # The engine then ignores the tag: only a glob for every tag is about this image.
        forms, glob = (image.name, f"{image.name}@{image.digest}"), glob.removesuffix(":*")
    else:
        forms = (image.name, str(image))
    return any(fnmatchcase(form, glob) for form in forms)
