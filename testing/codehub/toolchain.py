"""What people type first in a container, and an image for it: Debian's Python, bash, git and the usual tools."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path

from codehub.adapters.ide.toolchain import Toolchain
from testing.codehub.docker import tiny_root, usual_programs
from testing.codehub.ide import IDE_DIR
from testing.codehub.packages import npm_package, wheel

# Runs a command in the workspace, as over SSH or the API, and returns its output.
Run = Callable[[str], str]
WHEEL = "one-1.0-py3-none-any.whl"
INSTALL = "install --no-index --disable-pip-version-check -q"
SKELETON = "# from the image's skeleton\n"
_FILES = {
    WHEEL: wheel("one", "run-one"),
    "two-1.0-py3-none-any.whl": wheel("two", "run-two"),
    "tool.tgz": npm_package("run-tool"),
}


def debian_python_root(libraries_of: tuple[Path, ...] = ()) -> bytes:
    """A shell, the usual tools, and this Debian's Python: with pip, which refuses to change the system's packages."""
    pip = Toolchain(IDE_DIR).ensure_pip()
    assert pip is not None
    buffer = io.BytesIO(tiny_root(libraries_of, programs=(*usual_programs(), "base64")))
    with tarfile.open(fileobj=buffer, mode="a") as out:
        out.add(pip / "pip", "usr/lib/python3/dist-packages/pip")
        files = {
            "etc/profile": 'PATH="/usr/local/bin:/usr/bin:/bin"\nexport PATH\n',
            "etc/skel/.bashrc": SKELETON,
        }
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            out.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def login_shell(run: Run, command: str) -> str:
    return run(f"bash -lc {shlex.quote(command)} 2>&1").strip()


def put_packages(run: Run) -> None:
    for name, content in _FILES.items():
        run(f"base64 -d > {name} <<'END'\n{base64.encodebytes(content).decode()}END")


def check_toolchain(run: Run, restart: Callable[[], None]) -> None:
    """Install by pip and npm, commit by git, and find all of it in every shell, after a restart too."""
    put_packages(run)
    assert "one works" in login_shell(run, f"pip {INSTALL} ~/{WHEEL} && run-one")
    assert "two works" in login_shell(run, f"pip {INSTALL} --user ~/two-1.0*.whl && run-two")
    assert "run-tool works" in login_shell(run, "npm install -g --silent ~/tool.tgz && run-tool")
    found = ["pip", "run-one", "run-two", "run-tool"]
    folders = [".venv/bin", ".venv/bin", ".local/bin", ".local/bin"]
    places = [f"/home/coder/{folder}/{name}" for folder, name in zip(folders, found, strict=True)]
    # In a login shell, and without one, as a command over SSH or the API has it.
    assert login_shell(run, f"command -v {' '.join(found)}").split() == places
    assert run(f"command -v {' '.join(found)}").split() == places
    assert run("cat ~/.bashrc") == SKELETON
    commit = "git init -q ~/r; cd ~/r; git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"
    assert login_shell(run, commit).endswith("admin <admin@users.codehub.invalid>")
    # What the user changed is the user's, and is there after another start; no program of theirs replaces the IDE.
    run("echo mine >> ~/.bashrc; echo 'exit 3' > ~/.local/bin/code-server; chmod +x ~/.local/bin/code-server")
    restart()
    assert "one works" in login_shell(run, "run-one")
    assert run("cat ~/.bashrc").endswith("mine\n")
