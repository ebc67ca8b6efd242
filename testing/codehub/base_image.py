"""A base image for `Dockerfile` on machines that cannot pull one: this machine's Python, a shell and the recipe's programs.

The build argument BASE names it. Everything after FROM is what an operator builds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
# The programs that the recipe runs, and those that Python needs.
_PROGRAMS: Final = ("sh", "tar", "useradd", "mkdir", "chown", "cat", "ls", "env", "id", "sshd", "ssh-keygen")
_FILES: Final = ("/etc/login.defs", "/etc/nsswitch.conf")
# Libraries that wheels expect besides libc. Every real base image has them.
_ALWAYS: Final = (
    "libpthread.so.0", "librt.so.1", "libdl.so.2", "libutil.so.1", "libresolv.so.2", "libnss_files.so.2",
    "libnss_dns.so.2", "libgcc_s.so.1", "libstdc++.so.6",
)  # fmt: skip
_LEFT_OUT: Final = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "__pycache__",
    "site-packages",
    "lib2to3",
    "config-*",
)


def make_root(root: Path) -> None:
    """Create a file system with the Python that runs this, at the same path and as `python` on the PATH."""
    for name in (
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/sbin",
        "usr/local/bin",
        "etc",
        "tmp",
        "var/lib",
        "root",
        "proc",
        "dev",
    ):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    prefix = Path(sys.base_prefix)
    program = (prefix / "bin" / version).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, _inside(root, library), ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    tools = [Path(found) for name in _PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))]
    programs = [program, *tools]
    libraries = _libraries([*programs, *library.glob("lib-dynload/*.so")])
    beside = {path.parent / name for path in libraries if path.name == "libc.so.6" for name in _ALWAYS}
    for path in {*programs, *libraries, *beside, *map(Path, _FILES)}:
        if path.exists():
            target = _inside(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    for name in ("python", "python3", version):
        link = root / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(program)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    _trust(root)


def copy_distributions(name: str, target: Path, leaving_out: set[str]) -> None:
    """Copy the installed dependencies of a distribution, without itself (it may be installed from sources)."""
    target.mkdir(parents=True)
    wanted, seen = [name], set(leaving_out)
    while wanted:
        here = canonicalize_name(wanted.pop())
        if here in seen:
            continue
        seen.add(here)
        distribution = metadata.distribution(here)
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", "binary", "pool")
            ):
                wanted.append(requirement.name)
        if here != name:
            _copy_files(distribution, target)


def _copy_files(distribution: metadata.Distribution, target: Path) -> None:
    for file in distribution.files or []:
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and file.suffix != ".pyc" and source.is_file():
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def _trust(root: Path) -> None:
    """Copy the certificates with which this machine reaches the package index."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if bundle.exists():
        target = root / "etc/ssl/certs" / bundle.name
        target.parent.mkdir(parents=True)
        shutil.copy2(bundle, target)


def _inside(root: Path, path: Path) -> Path:
    text = str(path).lstrip("/")
    # The usual links: /bin is usr/bin, and so on.
    return root / (f"usr/{text}" if text.split("/")[0] in ("bin", "lib", "lib64", "sbin") else text)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        found |= {Path(word) for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return found
