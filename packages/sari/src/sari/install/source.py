"""pip's arguments for the source of a version. `install.py` at the repository's root follows the same rules."""

from __future__ import annotations

import os

from sari.install.errors import InstallError

# An earlier program of the same name used versions up to 2.x.
REQUIREMENT = "sari>=3"


def pip_arguments(
    wheel: str | None, wheels: str | None, version: str | None, requirements: str | None = None
) -> list[str]:
    """Return pip's arguments. With `requirements`, pip checks every file against its hash and installs nothing else."""
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
        return [*arguments, "--require-hashes", "--only-binary", ":all:", "-r", os.path.abspath(requirements)]
    if wheel is not None:
        if not os.path.isfile(wheel):
            raise InstallError(f"there is no wheel at {wheel}")
        return [*arguments, os.path.abspath(wheel)]
    return [*arguments, f"sari=={version}" if version else REQUIREMENT]
