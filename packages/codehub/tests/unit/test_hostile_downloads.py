"""What a hostile workspace answers to `codehub ws cp`: it writes to the destination alone."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import httpx
import pytest

from codehub.cli.client import Client
from codehub.cli.ws_copy import _download

SECRET = "the user's own"


def archive_of(name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    return made.getvalue()


def copy(path: str, target: Path, content: bytes, kind: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=content, headers={"Content-Type": kind})

    with Client("http://127.0.0.1", None, transport=httpx.MockTransport(answer)) as client:
        _download(client, "workspaces/w/files/", path, target)


@pytest.mark.parametrize("path", ["..", "a/..", "../", "."])
def test_a_folder_without_a_name_of_its_own_is_not_unpacked_above_the_destination(path: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "victim").write_text(SECRET)
    copy(path, tmp_path / "here", archive_of("victim"), "application/x-tar")
    assert (tmp_path / "victim").read_text() == SECRET
    assert (tmp_path / "here/home/victim").read_text() == "evil"


def test_a_file_is_written_through_no_link_and_over_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text(SECRET)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/notes.part").symlink_to(tmp_path / "victim")
    (tmp_path / "here/notes").symlink_to(tmp_path / "victim")
    copy("notes", tmp_path / "here", b"evil", "application/octet-stream")
    assert (tmp_path / "victim").read_text() == SECRET
    assert (tmp_path / "here/notes").read_text() == "evil"
    assert sorted(os.listdir(tmp_path / "here")) == ["notes", "notes.part"]
    assert (tmp_path / "here/notes.part").is_symlink()
