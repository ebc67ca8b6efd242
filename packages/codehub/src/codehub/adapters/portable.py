"""Makes programs of this machine run in any image: copies them with their libraries and their loader.

The paths of both are written into each program, so neither the image's C library nor an environment variable matters, and
child processes are not affected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from codehub.domain.errors import Terminal

_LOADER = "ld.so"
_LISTED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
# Parts of the standard library that running a program does not need.
_LEFT_OUT = (
    "*.opt-?.pyc",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "config-*",
    "_tkinter*",
    "_test*.so",
    "xx*.so",
)


def python_program() -> Path:
    """Return the interpreter that runs this code, not a virtual environment's link to it."""
    return Path(os.readlink("/proc/self/exe"))


def loader_of(program: Path) -> Path:
    """Return the loader that a program names."""
    output = _patchelf("--print-interpreter", program)
    return Path(output.strip()).resolve()


def put_programs(programs: Iterable[tuple[Path, Path]], libraries: Path, seen_at: Sequence[str]) -> None:
    """Copy (program, to) pairs with their libraries. `seen_at` are the library folders as the program will see them.

    The loader is placed in the last of them.
    """
    libraries.mkdir(parents=True, exist_ok=True)
    for program, to in programs:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, to)
        to.chmod(0o755)
        put_libraries([program], libraries, loader_of(program), seen_at)
        _patchelf("--set-interpreter", f"{seen_at[-1]}/{_LOADER}", to)
        _search_in(to, seen_at)


def put_libraries(files: Iterable[Path], libraries: Path, loader: Path, seen_at: Sequence[str]) -> None:
    """Copy the libraries that these files need, and the loader under a separate name."""
    target = libraries / _LOADER
    if not target.exists():
        shutil.copy(loader, target)
        target.chmod(0o755)
    for file in files:
        output = subprocess.run([loader, "--list", file], capture_output=True, text=True, check=False).stdout
        for path in map(Path, _LISTED.findall(output)):
            to = libraries / path.name
            if not to.exists() and path.resolve() != loader:
                shutil.copy(path.resolve(), to)
                to.chmod(0o755)
                replace_search(to, seen_at)


def replace_search(library: Path, seen_at: Sequence[str]) -> None:
    """Replace a library's own search path: it was meant for another machine and takes precedence over the program's."""
    if _patchelf("--print-rpath", library).strip():
        _search_in(library, seen_at)


def _search_in(file: Path, seen_at: Sequence[str]) -> None:
    _patchelf("--force-rpath", "--set-rpath", ":".join(seen_at), file)


def put_python(place: Path, seen_at: str) -> None:
    """Install `place/bin/python3` with its standard library, for use at `seen_at`."""
    program, library = python_program(), Path(sysconfig.get_path("stdlib"))
    put_programs([(program, place / "bin/python3")], place / "lib", [f"{seen_at}/lib"])
    modules = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(library, modules, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    put_compiled(modules)
    extensions = list(modules.glob("lib-dynload/*.so"))
    put_libraries(extensions, place / "lib", loader_of(program), [f"{seen_at}/lib"])
    for extension in extensions:
        replace_search(extension, [f"{seen_at}/lib"])


def put_compiled(modules: Path, python: str = sys.executable) -> None:
    """Compile modules ahead of time. In a read-only place, an uncompiled module would be compiled at every start.

    What cannot be compiled or written stays as it is.
    """
    command = [python, "-I", "-S", "-m", "compileall", "-qq", str(modules)]
    subprocess.run(command, check=False, capture_output=True, umask=0o022)  # others read it, regardless of our umask


def _patchelf(*words: str | Path) -> str:
    program = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    if program is None:
        raise Terminal(
            "patchelf is not installed, and containers need it: install CodeHub again with its dependencies"
        )
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Terminal(f"a program could not be prepared for containers: {done.stderr.strip()[-300:]}")
    return done.stdout
