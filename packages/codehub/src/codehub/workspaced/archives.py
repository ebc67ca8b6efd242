"""Uploads and downloads folders as tar, through `tars.py`, which runs as a separate process beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import IO, Callable

from . import paths, tars
from .errors import RequestError, invalid
from .http1 import Response, as_json, readable

_READ = 256 << 10
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(home: bytes, path: bytes) -> int:
    with paths.locate(home, path) as place:
        return _open(place)


def _open(place: paths.Place) -> int:
    try:
        return os.open(place.name or b".", _DIRECTORY, dir_fd=place.fd)
    except NotADirectoryError:
        raise invalid(f"{place.shown} is not a folder") from None
    except OSError as error:
        raise paths.refused(error, place.shown) from error


def _make(place: paths.Place) -> bool:
    """Make a folder, and return whether it is new."""
    try:
        os.mkdir(place.name or b".", 0o755, dir_fd=place.fd)
    except FileExistsError:
        return False
    except OSError as error:
        raise paths.refused(error, place.shown) from error
    return True


def _spawn(what: str, *fds: int) -> subprocess.Popen[bytes]:
    command: list[str] = [sys.executable, "-I", "-S", "-B", tars.__file__, what, *map(str, fds)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=fds, bufsize=0
    )


def download(home: bytes, path: bytes, *, dockerignore: bool = False) -> Response:
    folder = open_folder(home, path)
    what = "context" if dockerignore else "pack"
    return Response(200, {"Content-Type": "application/x-tar"}, _packed(what, folder))


async def _packed(what: str, folder: int) -> AsyncIterator[bytes]:
    process = _spawn(what, folder)
    os.close(folder)
    try:
        with _pipes(process):
            assert process.stdout is not None
            fd = process.stdout.fileno()
            os.set_blocking(fd, False)
            while True:
                data = await _when_ready(fd, lambda: os.read(fd, _READ))
                if not data:
                    break
                yield data
            if await _ended(process) != 0:
                # The length is not known in advance: only a broken connection tells the client that the archive is
                # incomplete.
                raise ConnectionAbortedError("the folder could not be packed")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def upload(home: bytes, path: bytes, body: AsyncIterator[bytes]) -> Response:
    with paths.locate(home, path, make_parents=True) as place:
        new = _make(place)
        try:
            return await _unpacked(_open(place), body)
        except BaseException:
            if new:
                with contextlib.suppress(OSError):  # another upload has put something into it
                    os.rmdir(place.name, dir_fd=place.fd)
            raise


def _spawn_unpacking(folder: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start unpacking. What is written to the file says that the upload is complete."""
    with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
        given.callback(os.close, folder)
        complete, completes = os.pipe()
        given.callback(os.close, complete)
        mark = kept.enter_context(open(completes, "wb", buffering=0))
        process = _spawn("unpack", folder, complete)
        kept.pop_all()
        return process, mark


async def _unpacked(folder: int, body: AsyncIterator[bytes]) -> Response:
    process, mark = _spawn_unpacking(folder)
    loop = asyncio.get_running_loop()
    try:
        with mark, _pipes(process):
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            fd = process.stdin.fileno()
            os.set_blocking(fd, False)
            async for part in body:
                view = memoryview(part)
                while view:
                    try:
                        view = view[os.write(fd, view) :]
                    except BlockingIOError:
                        await _writable(loop, fd)
                    except BrokenPipeError:
                        break
            with contextlib.suppress(BrokenPipeError):
                mark.write(tars.COMPLETE)
            process.stdin.close()
            code = await _ended(process)
            if code != 0:
                message = process.stderr.read().decode("utf-8", "replace").splitlines()
                if message and ("space" in message[-1] or "quota" in message[-1]):
                    raise RequestError(507, "INSUFFICIENT_STORAGE", message[-1])
                raise invalid(message[-1] if message else "the archive is damaged")
            return as_json({"entries": int(process.stdout.read() or b"0")})
    finally:
        # Interrupted: staged files must be removed, so the process is terminated instead of killed.
        if process.poll() is None:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def _pipes(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


async def _when_ready(fd: int, read: Callable[[], bytes]) -> bytes:
    while True:
        try:
            return read()
        except BlockingIOError:
            await readable(fd)


async def _writable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    done = loop.create_future()
    loop.add_writer(fd, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        loop.remove_writer(fd)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    pause = 0.001
    while process.poll() is None:
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return process.returncode
