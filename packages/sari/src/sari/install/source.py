"""Where a version comes from, as arguments of pip. `install.py` at the repository's root keeps the same rules."""

from __future__ import annotations

import os

from sari.install.errors import InstallError

# A predecessor of the same name went up to 2.x.
REQUIREMENT = "sari>=3"


def pip_arguments(wheel: str | None, wheels: str | None, version: str | None) -> list[str]:
    arguments: list[str] = []
    if wheels is not None:
        if not os.path.isdir(wheels):
            raise InstallError(f"{wheels} is not a folder of wheels")
        arguments += ["--no-index", "--find-links", os.path.abspath(wheels)]
    if wheel is not None:
        if not os.path.isfile(wheel):
            raise InstallError(f"there is no wheel at {wheel}")
        return [*arguments, os.path.abspath(wheel)]
    return [*arguments, f"sari=={version}" if version else REQUIREMENT]
