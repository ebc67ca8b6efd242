"""A folder of wheels from which sari installs without a network: its own in any version, and its dependencies'.

The dependencies' wheels are repacked from what is installed here, file by file according to their RECORD: a user's pip
unpacks what these tests run with, and nothing is downloaded. Built once per state of the source, under a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from sari.protocol.catalog import LANGUAGES

REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGE = REPOSITORY / "packages" / "sari"
_PLACE = REPOSITORY / ".parts" / "sari-wheels"
# Only those that sari parses, of 170 grammars in one wheel (200 MB to unpack, several times).
_GRAMMARS = {"__init__", *LANGUAGES}


def wheels() -> Path:
    """Return the folder with every dependency's wheel."""
    folder = _PLACE / "dependencies"
    with _locked():
        # hatchling builds sari if it is installed from a checkout.
        for name in {"hatchling"} | _dependencies("sari") | _dependencies("hatchling"):
            _repack(metadata.distribution(name), folder)
    return folder


def sari_wheel(version: str, *, broken: str = "") -> Path:
    """Return sari's wheel as this version.

    `broken` is Python code that is inserted at the start of its daemon or its shim.
    """
    with _locked():
        folder = _PLACE / f"{version}-{_digest(version + broken)}"
        found = list(folder.glob("*.whl"))
        if found:
            return found[0]
        for old in _PLACE.glob(f"{version}-*"):
            shutil.rmtree(old, ignore_errors=True)
        source = _PLACE / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(_PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "tests", "dist"))
        _set_version(source / "pyproject.toml", "version", version)
        _set_version(source / "src" / "sari" / "__init__.py", "__version__", version)
        if broken:
            module, _, code = broken.partition(": ")
            file = source / "src" / "sari" / module
            file.write_text(file.read_text() + f"\n\n{code}\n")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        shutil.rmtree(source)
        return next(folder.glob("*.whl"))


def pinned(folder: Path, leave_out: str = "") -> str:
    """Return requirements with the hash of every wheel in a folder, except those of one project."""
    lines = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        if name != leave_out:
            lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    return "\n".join(lines) + "\n"


def write_with_dependencies(wheel: Path, target: Path, text: str) -> None:
    """Write sari's wheel again, with this list of pinned dependencies; without one if it is empty."""
    inside = "sari/install/dependencies.txt"
    with zipfile.ZipFile(wheel) as old:
        files = {one.filename: old.read(one) for one in old.infolist() if one.filename != inside}
    if text:
        files[inside] = text.encode()
    target.unlink(missing_ok=True)
    with zipfile.ZipFile(target, "w") as new:
        for name, content in files.items():
            new.writestr(name, content)


def _locked() -> _Lock:
    return _Lock()


class _Lock:
    def __enter__(self) -> None:
        _PLACE.mkdir(parents=True, exist_ok=True)
        self._file = open(_PLACE / "lock", "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _digest(salt: str) -> str:
    digest = hashlib.sha256(salt.encode())
    files = (path for path in (_PACKAGE / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in sorted([*files, _PACKAGE / "pyproject.toml", Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _set_version(file: Path, name: str, version: str) -> None:
    text, count = re.subn(rf'^{name} = ".*"', f'{name} = "{version}"', file.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, file
    file.write_text(text)


def _dependencies(name: str) -> set[str]:
    """Return sari's transitive dependencies, as far as they are installed here."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for requirement in metadata.distribution(waiting.pop()).requires or []:
            needed = re.match(r"[\w.-]+", requirement)
            if needed is None or not _wanted(requirement) or needed.group() in found:
                continue
            found.add(needed.group())
            waiting.append(needed.group())
    return found


def _wanted(requirement: str) -> bool:
    return "extra ==" not in requirement and "python_version <" not in requirement


def _repack(distribution: metadata.Distribution, folder: Path) -> None:
    tags = [
        line.partition(": ")[2] for line in (distribution.read_text("WHEEL") or "").splitlines() if "Tag: " in line
    ]
    python, abi, _ = tags[0].split("-")
    platforms = ".".join(tag.split("-")[2] for tag in tags)
    name = re.sub(r"[-_.]+", "_", distribution.metadata["Name"])
    target = folder / f"{name}-{distribution.version}-{python}-{abi}-{platforms}.whl"
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for file in distribution.files or []:
            if "__pycache__" in file.parts or file.name in ("INSTALLER", "REQUESTED", "direct_url.json"):
                continue
            if "bindings" in file.parts and file.name.partition(".")[0] not in _GRAMMARS:
                continue
            inside = str(file)
            if file.parts[0] == "..":
                # A program of the distribution, which came from its data folder.
                inside = f"{name}-{distribution.version}.data/scripts/{file.name}"
            archive.write(str(file.locate()), inside)
    partial.rename(target)
