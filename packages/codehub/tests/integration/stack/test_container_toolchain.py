"""What people type first in a container: pip, npm, python, git, in an image of their own that has Python like Debian's."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from collections.abc import Iterator

import pytest

from codehub.adapters.ide.toolchain import Toolchain
from testing.codehub.container_walkthrough import docker_stack
from testing.codehub.docker import DockerEngine, tiny_root, usual_programs
from testing.codehub.doors import Doors
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.codehub.objectstore import S3Server
from testing.codehub.packages import npm_package, wheel

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("interfaces"),
    pytest.mark.timeout(900),
]
IMAGE = "codehub-test/debian-python:1"
INSTALL = "install --no-index --disable-pip-version-check -q"
FILES = {
    "one-1.0-py3-none-any.whl": wheel("one", "run-one"),
    "two-1.0-py3-none-any.whl": wheel("two", "run-two"),
    "tool.tgz": npm_package("run-tool"),
}


def debian_python_root() -> bytes:
    """A shell, the usual tools, and this Debian's Python: with pip, which refuses to change the system's packages."""
    pip = Toolchain(IDE_DIR).ensure_pip()
    assert pip is not None
    buffer = io.BytesIO(tiny_root(programs=(*usual_programs(), "base64")))
    with tarfile.open(fileobj=buffer, mode="a") as out:
        out.add(pip / "pip", "usr/lib/python3/dist-packages/pip")
        files = {
            "etc/profile": 'PATH="/usr/local/bin:/usr/bin:/bin"\nexport PATH\n',
            "etc/skel/.bashrc": "# from the image's skeleton\n",
        }
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            out.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def doors(docker_engine: DockerEngine, s3_server: S3Server) -> Iterator[Doors]:
    installed_code_server()
    docker_engine.load_image(IMAGE, debian_python_root(), ['CMD ["sh"]', "ENV PATH=/usr/local/bin:/usr/bin:/bin"])
    with docker_stack(docker_engine, s3_server, CODEHUB_ALLOWED_IMAGES=IMAGE, up=False) as walk:
        (walk.stack.data_dir / "ide").symlink_to(IDE_DIR)
        walk.stack.up()
        with walk.signed_in() as client:
            workspace_id = walk.create(client, IMAGE)
            walk.reach(client, workspace_id, "RUNNING")
            yield Doors(walk.stack, workspace_id, client.headers["Authorization"].removeprefix("Bearer "))


def login_shell(doors: Doors, command: str) -> str:
    return doors.sh(f"bash -lc {shlex.quote(command)} 2>&1").strip()


def test_pip_npm_git_and_shells_work_in_an_image_of_the_users_own(doors: Doors) -> None:
    for name, content in FILES.items():
        doors.sh(f"base64 -d > {name} <<'END'\n{base64.encodebytes(content).decode()}END")
    assert "one works" in login_shell(doors, f"pip {INSTALL} ~/one-1.0*.whl && run-one")
    assert "two works" in login_shell(doors, f"pip {INSTALL} --user ~/two-1.0*.whl && run-two")
    assert "run-tool works" in login_shell(doors, "npm install -g --silent ~/tool.tgz && run-tool")
    found = ["pip", "run-one", "run-two", "run-tool"]
    folders = [".venv/bin", ".venv/bin", ".local/bin", ".local/bin"]
    places = [f"/home/coder/{folder}/{name}" for folder, name in zip(folders, found, strict=True)]
    # In a login shell, and without one, as a command over SSH or the API has it.
    assert login_shell(doors, f"command -v {' '.join(found)}").split() == places
    assert doors.sh(f"command -v {' '.join(found)}").split() == places
    assert doors.sh("cat ~/.bashrc") == "# from the image's skeleton\n"
    commit = "git init -q ~/r; cd ~/r; git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"
    assert login_shell(doors, commit).endswith("admin <admin@users.codehub.invalid>")
    # What the user changed is the user's, and is there after another start; no program of theirs replaces the IDE.
    doors.sh("echo mine >> ~/.bashrc; echo 'exit 3' > ~/.local/bin/code-server; chmod +x ~/.local/bin/code-server")
    restarted = doors.codehub("ws", "restart", doors.workspace_id, "--wait")
    assert restarted.returncode == 0, restarted.stderr
    assert "one works" in login_shell(doors, "run-one")
    assert doors.sh("cat ~/.bashrc").endswith("mine\n")
