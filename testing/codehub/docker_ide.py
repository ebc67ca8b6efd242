"""The real code-server as an image of the tests' engine, without building.

Contains what images/code-server puts into its image, on this machine's libraries instead of a Debian base. Takes seconds,
where the recipe takes minutes (`make show-docker`).
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from testing.codehub.docker import DockerEngine, tiny_root
from testing.codehub.ide import installed_code_server

CODE_SERVER_IMAGE = "codehub/code-server:1"
_RECIPE = Path(__file__).resolve().parents[2] / "images/code-server"


def load_code_server_image(engine: DockerEngine) -> None:
    recipe = [line.strip() for line in (_RECIPE / "Dockerfile").read_text().splitlines()]
    changes = [line for line in recipe if line.startswith(("ENV", "USER", "WORKDIR", "LABEL", "EXPOSE", "CMD"))]
    repository, _, tag = CODE_SERVER_IMAGE.partition(":")
    with engine.client() as client:
        answer = client.post(
            "http://docker/images/create",
            params={"fromSrc": "-", "repo": repository, "tag": tag, "changes": changes},
            content=code_server_root(installed_code_server().parent),
            headers={"Content-Type": "application/x-tar"},
        )
    assert answer.status_code == 200, answer.text
    said = [json.loads(line) for line in answer.text.splitlines() if line]
    assert not any("error" in line for line in said), said


def code_server_root(ide: Path, base: Callable[[tuple[Path, ...]], bytes] = tiny_root) -> Iterator[bytes]:
    """Yield the file system as a tar stream, because it is half a gigabyte. `base` makes what the IDE is added to."""
    taken, given = os.pipe()

    def write() -> None:
        with open(given, "wb") as end, tarfile.open(fileobj=end, mode="w|") as out:
            programs = (
                ide / "node/bin/node",
                *ide.rglob("linux-x64/pty.node"),
            )  # terminals need more libraries than node
            with tarfile.open(fileobj=io.BytesIO(base(programs))) as given_base:
                for member in given_base:
                    out.addfile(member, given_base.extractfile(member) if member.isfile() else None)
            out.add(ide, "opt/code-server")
            for program in ("bin/code", "node/bin/node", "node/bin/npm", "node/bin/npx"):
                link = tarfile.TarInfo(f"usr/local/bin/{Path(program).name}")
                link.type, link.linkname = tarfile.SYMTYPE, f"/opt/code-server/{program}"
                out.addfile(link)
            start = out.gettarinfo(_RECIPE / "start", "usr/local/bin/codehub-start")
            start.mode = 0o755
            with open(_RECIPE / "start", "rb") as file:
                out.addfile(start, file)

    writer = threading.Thread(target=write, name="image", daemon=True)
    writer.start()
    with open(taken, "rb") as begin:
        while chunk := begin.read(1 << 20):
            yield chunk
    writer.join()
