"""An upload of a folder that is cut off leaves nothing, also between two of its files, where a tar looks complete."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codehub.workspaced import archives, tars


def packed(names: list[str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
    return made.getvalue()


WHOLE = packed(["first", "second"])
FIRST_FILE = WHOLE[:1024]  # its header and its content


async def test_what_was_sent_of_a_broken_upload_is_not_put_into_place(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield FIRST_FILE
        raise ConnectionResetError("the client is gone")

    for _ in range(5):
        with pytest.raises(ConnectionResetError):
            await archives.upload(os.fsencode(tmp_path), b"new", body())
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("complete", [True, False])
def test_the_end_of_the_data_alone_does_not_say_that_an_upload_is_complete(tmp_path: Path, complete: bool) -> None:
    """The data also ends if the process that received it was killed."""
    read, write = os.pipe()
    folder = os.open(tmp_path, os.O_RDONLY)
    unpacking = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", tars.__file__, "unpack", str(folder), str(read)],
        stdin=subprocess.PIPE, pass_fds=(folder, read), stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(read)
    os.close(folder)
    if complete:
        os.write(write, tars.COMPLETE)
    os.close(write)
    _, said = unpacking.communicate(WHOLE if complete else FIRST_FILE)
    assert (unpacking.returncode == 0) == complete, said
    assert sorted(os.listdir(tmp_path)) == (["first", "second"] if complete else [])
