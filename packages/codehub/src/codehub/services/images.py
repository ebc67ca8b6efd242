"""Which image a new workspace may name: a profile's name, or an allowed image (docs/profiles.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from codehub.domain.errors import Invalid
from codehub.domain.profiles import AppProfile

PROCESS = "process"


def check_image(
    image_ref: str, *, backend: str, profiles: Mapping[str, AppProfile], allowed_images: Sequence[str]
) -> None:
    """Raises Invalid unless a workspace on this backend may be made from this."""
    known = ", ".join(sorted(profiles))
    if (profile := profiles.get(image_ref)) is not None:
        if backend == PROCESS and not profile.command:
            raise Invalid(f"image_ref: the profile {image_ref!r} has no command for the process runtime")
        if backend != PROCESS and not profile.image:
            raise Invalid(f"image_ref: the profile {image_ref!r} has no image for containers")
        return
    if backend == PROCESS:
        raise Invalid(f"image_ref: {image_ref!r} is no profile, and the process runtime runs only those: {known}")
    own = {profile.image for profile in profiles.values() if profile.image}
    if image_ref in own or any(fnmatchcase(image_ref, pattern) for pattern in allowed_images):
        return
    raise Invalid(
        f"image_ref: {image_ref!r} is neither a profile ({known}) nor an image that CODEHUB_ALLOWED_IMAGES lets through"
    )
