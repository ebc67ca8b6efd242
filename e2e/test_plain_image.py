"""An image that a user names, without Python, IDE or SSH: CodeHub brings all of it along."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, expect

from e2e.ide_tabs import EDITOR, TIMEOUT_S, WORKBENCH, arrives, until
from e2e.pages import sign_in
from testing.codehub.container_walkthrough import docker_stack
from testing.codehub.docker import DockerEngine
from testing.codehub.doors import Doors
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.codehub.objectstore import S3Server

pytestmark = [
    pytest.mark.needs("docker", "root", "sshd"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(900),
]
IMAGE = "codehub-test/plain:1"
PROGRAMS = ("sh", "cat", "ls", "id", "mkdir", "readlink", "dirname", "uname")


def plain_root() -> bytes:
    """A shell and a few tools, as a distribution's smallest image has them: not even /etc/passwd."""
    wanted = {Path("/bin", name) for name in PROGRAMS}
    for program in tuple(wanted):
        said = subprocess.run(["ldd", program.resolve()], capture_output=True, text=True, check=True).stdout
        wanted |= {Path(word) for line in said.splitlines() for word in line.split() if word.startswith("/")}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as out:
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        out.addfile(tmp)
        for path in sorted(wanted):
            out.add(path.resolve(), str(path).lstrip("/"))
    return buffer.getvalue()


async def test_an_image_with_nothing_but_a_shell_gets_ide_terminal_and_ssh(
    docker_engine: DockerEngine, s3_server: S3Server, browser_context: BrowserContext
) -> None:
    docker_engine.load_image(IMAGE, plain_root(), ['CMD ["sh"]', "ENV PATH=/usr/bin:/bin"])
    installed_code_server()
    with docker_stack(docker_engine, s3_server, CODEHUB_ALLOWED_IMAGES=IMAGE, up=False) as walk:
        (walk.stack.data_dir / "ide").symlink_to(IDE_DIR)
        await asyncio.to_thread(walk.stack.up)
        with walk.signed_in() as client:
            workspace_id = walk.create(client, IMAGE)
            await asyncio.to_thread(walk.reach, client, workspace_id, "RUNNING")
            await asyncio.to_thread(walk.page, client, workspace_id, "/healthz")
            address = str(client.get(f"/api/v1/workspaces/{workspace_id}").json()["url"])
            token = client.headers["Authorization"].removeprefix("Bearer ")
        doors = Doors(walk.stack, workspace_id, token)
        assert doors.sh("id -un; command -v python3 || echo none; echo $HOME").split() == [
            "coder",
            "none",
            "/home/coder",
        ]
        said = doors.codehub("ssh", workspace_id, "--", "id -un; cat /etc/passwd")
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(b"coder\n")
        # `code FILE` in the container's shells: an error without an open window, then the file in that window.
        doors.sh("echo by exec > one.txt; echo by ssh > two.txt")
        early = doors.codehub("ws", "exec", workspace_id, "--", "code", "one.txt")
        assert early.returncode == 1
        assert b"Open the workspace in your browser" in early.stderr + early.stdout
        page = await browser_context.new_page()
        await sign_in(page, walk.stack, password=walk.stack.password())
        await page.goto(address)
        await arrives(page, WORKBENCH)
        for words, file, text in ((("ws", "exec"), "one.txt", "by exec"), (("ssh",), "two.txt", "by ssh")):

            async def opened(words: tuple[str, ...] = words, file: str = file) -> bool:
                """The window is known a moment after it is shown."""
                said = await asyncio.to_thread(doors.codehub, *words, workspace_id, "--", "code", file)
                return said.returncode == 0

            await until(opened, f"`code {file}` finds the window")
            await expect(page.locator(EDITOR)).to_contain_text(text, timeout=TIMEOUT_S * 1000)
