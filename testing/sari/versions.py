"""Wheels of sari in different versions, each in a separate environment, like those of a user who upgrades.

Built once per state of the source under `.parts/sari-versions`, under a file lock. The locked dependencies are shared with
the repository's environment through a path file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGE = REPOSITORY / "packages/sari"
_PARTS = REPOSITORY / ".parts/sari-versions"


def sari_of_version(version: str, *, at_start: str = "") -> str:
    """Return the `sari` program of a version. `at_start` is Python code that its daemon runs first (to break it)."""
    digest = _digest(version + at_start)
    place = _PARTS / f"{version}-{digest}"
    program = place / "bin/sari"
    _PARTS.mkdir(parents=True, exist_ok=True)
    with open(_PARTS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            for old in _PARTS.glob(f"{version}-*"):
                shutil.rmtree(old, ignore_errors=True)
            _install(place, _build(version, place.with_suffix(".src"), at_start))
            shutil.rmtree(place.with_suffix(".src"), ignore_errors=True)
            (place / "ready").touch()
    return str(program)


def _digest(salt: str) -> str:
    digest = hashlib.sha256(salt.encode())
    for path in sorted([*(_PACKAGE / "src").rglob("*.py"), _PACKAGE / "pyproject.toml", Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _build(version: str, source: Path, at_start: str) -> Path:
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(_PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "tests", "dist"))
    _replace(source / "pyproject.toml", 'version = "', version)
    _replace(source / "src/sari/__init__.py", '__version__ = "', version)
    if at_start:
        boot = source / "src/sari/daemon/boot.py"
        head, future, rest = boot.read_text().partition("from __future__ import annotations\n")
        boot.write_text(f"{head}{future}{at_start}\n{rest}")
    _run(_uv(), "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", source / "out", source)
    return next((source / "out").glob("*.whl"))


def _install(place: Path, wheel: Path) -> None:
    _run(_uv(), "venv", "--quiet", "--python", sys.executable, place)
    _run(_uv(), "pip", "install", "--quiet", "--no-deps", "--python", place / "bin/python", wheel)
    shared = sysconfig.get_paths()["purelib"]
    site = next(place.glob("lib/python*/site-packages"))
    (site / "shared-dependencies.pth").write_text(shared + "\n")
    rg = Path(sys.executable).with_name("rg")
    if rg.exists():
        (place / "bin/rg").symlink_to(rg)


def _replace(path: Path, before: str, version: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if line.startswith(before))
    lines[number] = f'{before}{version}"\n'
    path.write_text("".join(lines))


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _run(*words: str | Path) -> None:
    environ = {**os.environ, "UV_LINK_MODE": "hardlink", "VIRTUAL_ENV": str(Path(sys.executable).parent.parent)}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
