"""sari's installation: one environment per version, and the `sari` command as a link to the one in use.

    PREFIX/bin/sari                       → the version in use (a link, replaced atomically)
    PREFIX/share/sari/app/<name>/         one environment; it is complete if it contains `sari-ready`

A version that a running process uses stays on disk, so an upgrade never breaks a running client. Uses only the
standard library.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sari.install.errors import InstallError
from sari.install.source import VERIFIED, Source

READY: Final = "sari-ready"
# The previous version is kept for clients that still run it. Older ones are removed once they are unused.
_KEPT: Final = 2
_BUILD_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Application:
    """An installation of sari."""

    prefix: Path

    @property
    def folder(self) -> Path:
        return self.prefix / "share" / "sari" / "app"

    @property
    def command(self) -> Path:
        return self.prefix / "bin" / ("sari.cmd" if os.name == "nt" else "sari")

    def current(self) -> Path | None:
        """Return the environment that the command points to."""
        try:
            if os.name == "nt":
                target = Path(self.command.read_text("utf-8").partition('"')[2].partition('"')[0])
            else:
                target = Path(os.readlink(self.command))
        except OSError:
            return None
        environment = target.parent.parent
        return environment if environment.parent == self.folder else None

    def environments(self) -> list[Path]:
        """Return the complete environments, newest first."""
        marked = [path.parent for path in self.folder.glob(f"*/{READY}")]
        return sorted(marked, key=lambda path: (path / READY).stat().st_mtime_ns, reverse=True)

    def switch(self, environment: Path) -> None:
        """Point the command to this environment atomically."""
        self.command.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.command.with_name(f".sari-{secrets.token_hex(4)}")
        try:
            if os.name == "nt":
                fresh.write_text(f'@"{program_of(environment)}" %*\r\n', "utf-8")
            else:
                fresh.symlink_to(program_of(environment))
            os.replace(fresh, self.command)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise InstallError(f"{self.command} could not be written ({error.strerror})") from error

    def prune(self) -> None:
        """Remove unneeded environments: incomplete ones, and old ones that no process runs."""
        kept = {self.current(), *self.environments()[:_KEPT]}
        running = _running_from(self.folder)
        for path in self.folder.iterdir():
            used = any(name == str(path) or name.startswith(f"{path}{os.sep}") for name in running)
            if path.is_dir() and path not in kept and not used and not _being_made(path):
                shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the command and all environments, and nothing else."""
        if self.current() is not None:
            self.command.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()


def program_of(environment: Path) -> Path:
    return environment / ("Scripts/sari.exe" if os.name == "nt" else "bin/sari")


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def own_application(executable: str = sys.executable) -> Application | None:
    """Return the installation that this process runs from, if any."""
    environment = Path(executable).parent.parent
    folder = environment.parent
    if folder.name == "app" and folder.parent.name == "sari" and (environment / READY).exists():
        return Application(folder.parent.parent.parent)
    return None


def build(application: Application, source: Source) -> Path:
    """Create a new environment with sari in it, not yet in use. On failure nothing is left of it."""
    environment = application.folder / f"{os.getpid()}-{secrets.token_hex(4)}"
    environment.parent.mkdir(parents=True, exist_ok=True)
    try:
        bundled = _bundled_pip()
        # Use the base interpreter: an environment must not depend on another one that may be removed.
        # -P: never from the current folder, which may be a repository.
        venv = [_base_python(), "-P", "-m", "venv", *(["--without-pip"] if bundled else []), str(environment)]
        _run(venv, "an environment could not be made")
        pip = [str(python_of(environment)), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        failure = "sari could not be installed into its environment"
        if source.locked:
            _run([*pip, "--no-deps", *source.arguments], failure, bundled)
            failure = "sari's dependencies could not be installed as this version pins them"
            _run([*pip, *VERIFIED, str(_dependencies(environment))], failure, bundled)
        else:
            _run([*pip, *source.arguments], failure, bundled)
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    return environment


def _dependencies(environment: Path) -> Path:
    """Return the file in which an installed version pins its dependencies."""
    folder = "Lib/site-packages" if os.name == "nt" else "lib/python*/site-packages"
    found = next(environment.glob(f"{folder}/sari/install/dependencies.txt"), None)
    if found is None:
        raise InstallError(
            "this version of sari does not pin its dependencies. Pin them yourself (sari upgrade --requirements FILE)."
        )
    return found


def _base_python() -> str:
    return getattr(sys, "_base_executable", sys.executable) or sys.executable


def _bundled_pip() -> str:
    """Return the path of Python's bundled pip, used directly: installing it into the environment takes longer than sari."""
    try:
        import ensurepip
    except ImportError:
        return ""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next((str(wheel) for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), "")


def _run(command: list[str], failure: str, python_path: str = "") -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    if python_path:
        environment["PYTHONPATH"] = python_path
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{failure}: {error}") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise InstallError(f"{failure}: " + "\n".join(lines[-6:]))


def write_program(environment: Path) -> None:
    """Write the command's script. Runs in the environment's own Python."""
    if os.name == "nt":
        return
    from sari.install.launcher import program_text

    program = program_of(environment)
    program.write_text(program_text(environment, python_of(environment)), "utf-8")
    program.chmod(0o755)


def _being_made(environment: Path) -> bool:
    """Whether the installer that creates it is still running; its pid is part of the name."""
    pid = environment.name.partition("-")[0]
    if (environment / READY).exists() or not pid.isdigit() or os.name != "posix":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _running_from(folder: Path) -> set[str]:
    """Return the programs and arguments of all processes that name this folder."""
    found: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        found.update(text for word in words if (text := os.fsdecode(word)).startswith(str(folder)))
    return found
