"""`codehub ws cp`: copies files and folders between this machine and a workspace. It wakes a sleeping workspace."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

import click

from codehub.cli.client import Client
from codehub.cli.options import inside, server_option
from codehub.cli.output import console
from codehub.domain.errors import Conflict, Invalid, NotFound
from codehub.workspaced import tars

_CHUNK = 256 << 10


@click.command()
@click.argument("source")
@click.argument("target")
@server_option
def cp(source: str, target: str, server: str | None) -> None:
    """Copy files and folders to or from a workspace. One side is `WORKSPACE:PATH`, relative to its home.

    \b
    Examples:
      codehub ws cp notes.txt api:            into the home, under the same name
      codehub ws cp src api:project/src       a folder with its contents
      codehub ws cp api:build/report.pdf .
    """
    up, down = _remote(target), _remote(source)
    if (up is None) == (down is None):
        raise Invalid("one of the two must be WORKSPACE:PATH, and the other a path here")
    if up is not None:
        if not Path(source).exists():
            raise NotFound(f"{source} is not there")
        with inside(server, up[0]) as (client, found):
            _upload(client, Path(source), f"workspaces/{found['id']}/files/", up[1])
    elif down is not None:
        with inside(server, down[0]) as (client, found):
            _download(client, f"workspaces/{found['id']}/files/", down[1], Path(target))


def _remote(text: str) -> tuple[str, str] | None:
    """Return (workspace, path), parsed like scp: a colon before any slash."""
    name, colon, path = text.partition(":")
    return (name, path) if colon and name and "/" not in name else None


def _upload(client: Client, source: Path, files: str, path: str) -> None:
    if path in ("", ".") or path.endswith("/") or _is_folder(client, files, path):
        path = posixpath.join(path, source.resolve().name)
    if source.is_dir():
        headers = {"Content-Type": "application/x-tar"}
        client.put(files + quoted(path), _packed(source), **headers)
    else:
        with source.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Invalid(f"{source} is neither a file nor a folder")
            client.put(
                files + quoted(path) + f"?mode={found.st_mode & 0o777:03o}",
                _exactly(file, found.st_size),
                **{"Content-Length": str(found.st_size)},
            )
    console(err=True).print(f"{source} → {path}")


def quoted(path: str) -> str:
    """Return a path for a URL. Names are bytes, and need not be UTF-8; the HTTP client would resolve a plain `..`."""
    parts = os.fsencode(path).split(b"/")
    return "/".join("%2E%2E" if part == b".." else quote(part) for part in parts)


def _is_folder(client: Client, files: str, path: str) -> bool:
    try:
        client.get(files + quoted(path), list=True)
    except (NotFound, Invalid):
        return False
    return True


def _exactly(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield as many bytes as the file had at first: a log may grow while it is copied."""
    while size:
        data = file.read(min(_CHUNK, size))
        if not data:
            raise Conflict(f"{file.name} became shorter while it was copied")
        size -= len(data)
        yield data


def _packed(source: Path) -> Iterator[bytes]:
    """Yield a folder as tar, created by a thread while it is sent."""
    read_fd, write_fd = os.pipe()
    failed: list[BaseException] = []

    def pack() -> None:
        try:
            with os.fdopen(write_fd, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|") as archive:
                for entry in sorted(source.iterdir()):
                    archive.add(entry, entry.name, filter=_not_too_deep)
        except (OSError, ValueError) as error:
            failed.append(error)

    thread = threading.Thread(target=pack, daemon=True)
    thread.start()
    with os.fdopen(read_fd, "rb") as pipe:
        while data := pipe.read(_CHUNK):
            yield data
    thread.join()
    if failed:
        raise Conflict(f"{source} could not be read: {failed[0]}")


def _not_too_deep(member: tarfile.TarInfo) -> tarfile.TarInfo:
    tars.check_depth(member.name)  # the workspace would refuse it, and reading it is recursive
    return member


def _download(client: Client, files: str, path: str, target: Path) -> None:
    if target.is_dir():
        name = posixpath.basename(path.rstrip("/"))
        target = target / (name if name not in ("", ".", "..") else "home")
    with client.download(files + quoted(path)) as response:
        if response.headers.get("content-type") == "application/x-tar":
            target.mkdir(parents=True, exist_ok=True)
            _unpack(response.iter_bytes(_CHUNK), target)
        else:
            # A new file: one that is there may be the user's, or a link to one.
            partial = target.with_name(f".codehub-download-{secrets.token_hex(8)}")
            try:
                with partial.open("xb") as file:
                    for data in response.iter_bytes(_CHUNK):
                        file.write(data)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
    console(err=True).print(f"{path} → {target}")


def _unpack(pieces: Iterator[bytes], target: Path) -> None:
    """Unpack what a workspace sends. It may be hostile, and the filter of older Pythons' tarfile can be escaped."""
    outward: list[str] = []
    try:
        tars.unpack(_Reader(pieces), str(target), "r|", outward)
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise Conflict(f"the workspace sent no usable archive, and nothing was written: {error}") from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise Conflict("the workspace's folder has paths that are too long here; nothing was written") from error
    if outward:
        some = ", ".join(outward[:3]) + (", …" if len(outward) > 3 else "")
        console(err=True).print(f"{len(outward)} links that lead out of the folder were left out: {some}")


class _Reader:
    """Presents chunks as a file that tarfile can read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
