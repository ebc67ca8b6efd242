"""Names of devcontainer.json's features: a folder of the repository, or an artifact in a registry. Pure.

Also defines which registries a repository may make CodeHub ask, and what devcontainer-lock.json pins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from codehub.domain.errors import Invalid
from codehub.domain.images import ImageRef, is_allowed, parse_image
from codehub.domain.jsonc import parse_jsonc

LOCK_FILE = "devcontainer-lock.json"
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def is_local(key: str) -> bool:
    return key.startswith("./")


def parse_feature_ref(key: str) -> ImageRef:
    """Parse the name of a feature in a registry. Raises Invalid."""
    try:
        ref = parse_image(key)
    except Invalid:
        ref = ImageRef("", "", "", "")
    if not ref.registry or (ref.digest and not _SHA256.fullmatch(ref.digest)):
        raise Invalid(
            f"{key!r} is not a feature: use a folder of the repository (./NAME), or HOST/PATH/NAME[:VERSION] of a registry"
        )
    return ref


@dataclass(frozen=True, slots=True)
class FeatureRules:
    """`allowed` are the administrator's globs for features and for images: both choose what runs in a container."""

    allowed: tuple[str, ...] = ()

    def check(self, ref: ImageRef) -> None:
        """Raise Invalid if features may not come from there."""
        if not is_allowed(ref, self.allowed):
            raise Invalid(
                f"the feature {ref} is not allowed here; ask an administrator to add it to CODEHUB_ALLOWED_FEATURES"
            )

    @property
    def named_hosts(self) -> frozenset[str]:
        """The `host[:port]`s that the administrator wrote out. Only these may have private addresses."""
        hosts = {glob.partition("/")[0] for glob in self.allowed if "/" in glob}
        return frozenset(host.lower() for host in hosts if not re.search(r"[*?\[]", host))


def locked_digests(lock: bytes) -> dict[str, str]:
    """Return the digest that devcontainer-lock.json holds for each feature's key. Raises Invalid."""
    if not lock.strip():
        return {}
    try:
        document = parse_jsonc(lock.decode("utf-8", "replace"))
    except Invalid as error:
        raise Invalid(f"{LOCK_FILE}: {error}") from error
    listed = document.get("features", {}) if isinstance(document, dict) else None
    if not isinstance(listed, dict):
        raise Invalid(f"{LOCK_FILE} holds no object of features")
    found: dict[str, str] = {}
    for key, entry in listed.items():
        if is_local(key):
            continue
        resolved = entry.get("resolved") if isinstance(entry, dict) else None
        name, _, digest = resolved.partition("@") if isinstance(resolved, str) else ("", "", "")
        integrity = entry.get("integrity", digest) if isinstance(entry, dict) else ""
        if name != parse_feature_ref(key).name or not _SHA256.fullmatch(digest) or integrity != digest:
            raise Invalid(f"{LOCK_FILE} does not say which {key} is meant: update it")
        found[key] = digest
    return found


def pinned(key: str, locked: Mapping[str, str]) -> ImageRef:
    """Return what is fetched for a key: the digest of the lock file, if it names one."""
    ref = parse_feature_ref(key)
    digest = locked.get(key, "")
    if digest and ref.digest not in ("", digest):
        raise Invalid(f"{LOCK_FILE} and devcontainer.json name different digests of {ref.name}")
    return replace(ref, digest=digest) if digest else ref
