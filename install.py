#!/usr/bin/env python3
"""Sets sari up on a machine that has only Python 3.11 or later: an environment of its own, and the command `sari`.

    python3 install.py                         from this checkout if it stands in one, else from the package registry
    python3 install.py --wheel sari-….whl      from a wheel; with --wheels DIR its dependencies too, without a network
    python3 install.py --host codex            and configure a client (codex, gemini, claude, cursor, vscode or all)

Run it again to upgrade or to repair: a running daemon is reused or hands over without a gap, a failed upgrade leaves the
old version working, and sari's registry and indexes are never deleted. The standard library only; nothing of sari is
imported here, the new version does the second half itself (sari.install.activate).
"""

import argparse
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python needs this message
    sys.exit(
        "sari needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Run install.py with a newer one."
    )

# A predecessor of the same name went up to 2.x.
REQUIREMENT = "sari>=3"


def main() -> int:
    arguments = parse()
    prefix = Path(arguments.prefix).expanduser().absolute()
    app = prefix / "share" / "sari" / "app"
    command = prefix / "bin" / ("sari.cmd" if os.name == "nt" else "sari")
    try:
        app.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(app / "install.lock"):
            environment = build(app, source(arguments), locked=arguments.wheels is None)
            second_half = [str(python_of(environment)), "-EP", "-m", "sari.install.activate", str(prefix)]
            if subprocess.run([*second_half, str(environment)], check=False).returncode != 0:
                shutil.rmtree(environment, ignore_errors=True)
                raise Failed("the version that was in use, if any, is still in use")
    except OSError as error:
        raise Failed(f"{error.filename}: {error.strerror}") from error
    if str(command.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        print(f"Add {command.parent} to your PATH to call it as `sari`.")
    if arguments.host:
        configure = [str(command), "install", "--host", arguments.host, "--scope", arguments.scope]
        return subprocess.run(configure, check=False).returncode
    print("Next: sari install --host codex|gemini|claude|cursor|vscode|all")
    return 0


class Failed(Exception):
    """What to tell the user."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--wheel", metavar="FILE", help="install this wheel")
    parser.add_argument("--wheels", metavar="DIR", help="look for everything in this folder, use no network")
    parser.add_argument("--version", metavar="VERSION", help="this version from the package registry")
    parser.add_argument("--prefix", metavar="DIR", default="~/.local", help="where to (default ~/.local)")
    parser.add_argument("--host", help="configure this client, or all")
    parser.add_argument("--scope", choices=["user", "project"], default="user", help="whose configuration")
    return parser.parse_args()


def source(arguments: argparse.Namespace) -> list[str]:
    """What pip installs."""
    found: list[str] = []
    if arguments.wheels is not None:
        if not os.path.isdir(arguments.wheels):
            raise Failed(f"{arguments.wheels} is not a folder of wheels")
        found += ["--no-index", "--find-links", os.path.abspath(arguments.wheels)]
    if arguments.wheel is not None:
        if not os.path.isfile(arguments.wheel):
            raise Failed(f"there is no wheel at {arguments.wheel}")
        return [*found, os.path.abspath(arguments.wheel)]
    if arguments.version:
        return [*found, f"sari=={arguments.version}"]
    checkout = Path(__file__).absolute().parent / "packages" / "sari"
    if (checkout / "pyproject.toml").is_file() and arguments.wheels is None:
        return [*found, str(checkout)]
    return [*found, REQUIREMENT]


def build(app: Path, pip_arguments: list[str], *, locked: bool) -> Path:
    """Create a new environment with sari in it; on failure nothing is left of it.

    With `locked`, the dependencies are those that sari's own dependencies.txt pins, each checked against its hash.
    """
    environment = app / f"{os.getpid()}-{secrets.token_hex(4)}"
    base = getattr(sys, "_base_executable", sys.executable) or sys.executable
    try:
        print("Making an environment …", flush=True)
        bundled = bundled_pip()
        # -P: never from the current folder, which may be a repository.
        venv = [base, "-P", "-m", "venv", *(["--without-pip"] if bundled else []), str(environment)]
        run(venv, "This Python cannot make environments. " + NO_VENV)
        print("Installing sari …", flush=True)
        pip = [str(python_of(environment)), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, *(["--no-deps"] if locked else []), *pip_arguments], "sari could not be installed.", bundled)
        if locked:
            folder = "Lib/site-packages" if os.name == "nt" else "lib/python*/site-packages"
            pinned = next(environment.glob(f"{folder}/sari/install/dependencies.txt"), None)
            if pinned is None:
                raise Failed("This version does not pin its dependencies. Install a newer one.")
            verified = ["--require-hashes", "--only-binary", ":all:", "-r", str(pinned)]
            run([*pip, *verified], "sari's dependencies could not be installed as it pins them.", bundled)
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    return environment


NO_VENV = "On Debian or Ubuntu: sudo apt-get install python3-venv python3-pip"


def bundled_pip() -> str:
    """The pip that Python carries, used as it is: installing it into the environment first takes longer than sari."""
    try:
        import ensurepip
    except ImportError:
        return ""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next((str(wheel) for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), "")


def run(command: list[str], failure: str, python_path: str = "") -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    if python_path:
        environment["PYTHONPATH"] = python_path
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(failure + "\n" + "\n".join(lines[-6:]))


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Two installers at once would prune each other's half-made environments."""
    with open(path, "a") as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"sari was not installed: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)
