"""The source of a version, as pip's arguments. `install.py` at the repository's root follows the same rules."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sari.install.errors import InstallError

# An earlier program of the same name used versions up to 2.x.
REQUIREMENT = "sari>=3"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a version comes from: pip's arguments, and whether it brings the hashes of its dependencies.

    With `locked`, sari alone is installed first. The dependencies are then exactly those that its own
    `dependencies.txt` pins, and each file is checked against its hash.
    """

    arguments: tuple[str, ...]
    locked: bool


# pip installs nothing that a requirements file does not pin, and runs no code of a source distribution.
VERIFIED = ("--require-hashes", "--only-binary", ":all:", "-r")


def choose_source(
    wheel: str | None, wheels: str | None, version: str | None, requirements: str | None = None
) -> Source:
    """Return the source that the options name. A folder of wheels and a requirements file name the dependencies too."""
    arguments: list[str] = []
    if wheels is not None:
        if not os.path.isdir(wheels):
            raise InstallError(f"{wheels} is not a folder of wheels")
        arguments += ["--no-index", "--find-links", os.path.abspath(wheels)]
    if requirements is not None:
        if wheel is not None or version is not None:
            raise InstallError("--requirements names the version itself: leave out --wheel and --version")
        if not os.path.isfile(requirements):
            raise InstallError(f"there is no requirements file at {requirements}")
        return Source((*arguments, *VERIFIED, os.path.abspath(requirements)), locked=False)
    if wheel is not None:
        if not os.path.isfile(wheel):
            raise InstallError(f"there is no wheel at {wheel}")
        return Source((*arguments, os.path.abspath(wheel)), locked=wheels is None)
    return Source((*arguments, f"sari=={version}" if version else REQUIREMENT), locked=wheels is None)
