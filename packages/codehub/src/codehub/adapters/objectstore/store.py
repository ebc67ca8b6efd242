"""The object store, as blocking calls for worker threads. Only this module knows obstore and its errors.

Connects by URL and translates errors: a store that does not answer is BackendDown, one that refuses us or our credentials
is Transient with its message, a full disk is OutOfSpace.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions as failures
from obstore.store import LocalStore, S3Store, from_url

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.objectstore import files
from codehub.adapters.objectstore.layout import ID_KEY
from codehub.adapters.objectstore.uploads import S3Access, UploadsOfS3
from codehub.domain.errors import BackendDown, CodeHubError, Invalid, NotFound, OutOfSpace, Transient

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

PART_BYTES = 8 << 20  # S3 allows 10,000 parts: archives up to 80 GB
_PARTS_AT_ONCE = 3  # bounds memory; enough to fill a gigabit
_READ_BYTES = 4 << 20
# S3's answer to a condition in a header that the store does not know. Others ignore it.
_NOT_CONDITIONAL = ("NotImplemented", "501 Not Implemented")
_NO_ROOM = ("No space left", "Disk quota", "os error 28", "os error 122", "EntityTooLarge", "QuotaExceeded")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach an S3 store. Empty values come from the AWS_* environment, as usual."""

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""
    timeout_s: float = 120.0
    retries: int = 3


class Store:
    """The store of one URL. Safe to use from several threads."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        split = urlsplit(url)
        self.url = url
        self._expected: str | None = None
        self._held = ""
        self._root: Path | None = None
        self._uploads: UploadsOfS3 | None = None
        self._store: ObjectStore
        if split.scheme == "file":
            self._root = Path(unquote(split.path))
            if not self._root.is_absolute():
                raise Invalid(f"CODEHUB_ARCHIVE_URL {url!r} needs an absolute path: file:///var/lib/…")
            # It holds homes of all users, so no other user of the machine may read it.
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = LocalStore(self._root)
        elif split.scheme == "s3":
            access = S3Access.of(
                split.netloc,
                split.path.strip("/"),
                options.endpoint,
                options.region,
                options.access_key,
                options.secret_key,
            )
            self._store = _open_s3(access, options)
            self._uploads = UploadsOfS3(access)
        else:
            self._store = from_url(url, client_options=_client(options), retry_config=_retry(options))

    @property
    def place(self) -> str:
        """Return the location for display: a directory or the URL."""
        return str(self._root) if self._root is not None else self.url

    def read_id(self) -> str | None:
        """Return the store's own id, or None if it has none."""
        with _translated(self.place, "read the store's id"):
            try:
                return bytes(obstore.get(self._store, ID_KEY).bytes()).decode("utf-8", "replace").strip() or None
            except (failures.NotFoundError, FileNotFoundError):
                return None

    def write_id(self, store_id: str) -> None:
        with _translated(self.place, "write the store's id"):
            self._put(ID_KEY, store_id.encode() + b"\n")

    def expect(self, store_id: str) -> None:
        """Treat a directory without this id as down from now on: its disk is not mounted, or it is another one."""
        self._expected, self._held = store_id, ""

    def hold(self, why: str) -> None:
        """Treat the store as down, for this reason, until `expect` is called."""
        self._held = why

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        if self._held:
            raise BackendDown(self._held)
        # Of a directory at once: nothing may be written into an empty mount point.
        if self._root is not None:
            self._check_id()
        with _translated(self.place, doing):
            yield

    def _check_id(self) -> None:
        if self._expected is None or self.read_id() == self._expected:
            return
        if self._root is not None:
            raise BackendDown(f"the archive directory {self._root} is not the one it was: is its disk mounted?")
        raise BackendDown(
            f"the archive store {self.url} is not the one it was: its object {ID_KEY} is missing or another's. Does the "
            "bucket still exist, and does its address lead to it?"
        )

    def _check_absent(self) -> None:
        """Confirm that an object is absent: only the right store can tell.

        A reverse proxy without its backend and a deleted bucket answer 404 too, and a disk may have gone since the check.
        """
        self._check_id()

    def close(self) -> None:
        if self._uploads is not None:
            self._uploads.close()

    def ping(self) -> None:
        with self._guarded("reach the archive store"):
            if self._root is not None and not self._root.is_dir():
                raise BackendDown(f"the archive directory {self._root} does not exist")
            with contextlib.suppress(failures.NotFoundError, FileNotFoundError):
                obstore.head(self._store, "codehub-ping")

    def put(self, key: str, content: bytes) -> None:
        with self._guarded(f"write {key}"):
            self._put(key, content)

    def _put(self, key: str, content: bytes) -> None:
        if self._root is None:
            obstore.put(self._store, key, content, use_multipart=False)
            return
        files.put(self._root / key, [content], flush=True)
        self._sync(key)

    def put_new(self, key: str, content: bytes) -> None:
        """Write an object unless there is one: read it afterwards to see whose it is.

        Without support for conditional writes in the store, it is replaced.
        """
        with self._guarded(f"write {key}"):
            if self._root is not None:
                files.put(self._root / key, [content], flush=True, replace=False)
                self._sync(key)
                return
            try:
                obstore.put(self._store, key, content, use_multipart=False, mode="create")
            except failures.AlreadyExistsError:
                pass
            except NotImplementedError:  # AWS_CONDITIONAL_PUT=disabled
                self._put(key, content)
            except failures.BaseError as error:
                if not any(sign in str(error) for sign in _NOT_CONDITIONAL):
                    raise
                self._put(key, content)

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object, completely or not at all.

        The producer's error aborts the upload and is raised unchanged. Then `sync`.
        """
        produced = _Produced(chunks)
        try:
            with self._guarded(f"write {key}"):
                if self._root is not None:
                    files.put(self._root / key, produced)
                    return
                obstore.put(
                    self._store,
                    key,
                    produced,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
        except BaseException:
            if produced.error is not None:
                raise produced.error from None
            raise

    def size(self, key: str) -> int | None:
        """Return the object's size, or None if it does not exist."""
        with self._guarded(f"look at {key}"):
            try:
                return int(obstore.head(self._store, key)["size"])
            except (failures.NotFoundError, FileNotFoundError):
                self._check_absent()
                return None

    def get(self, key: str) -> bytes | None:
        with self._guarded(f"read {key}"):
            try:
                return bytes(obstore.get(self._store, key).bytes())
            except (failures.NotFoundError, FileNotFoundError):
                self._check_absent()
                return None

    def stream(self, key: str) -> Iterator[bytes]:
        """Yield the object's content. Raises NotFound if it does not exist."""
        with self._guarded(f"read {key}"):
            if self._root is not None:
                try:
                    yield from files.stream(self._root / key)
                except FileNotFoundError as error:
                    self._check_absent()
                    raise NotFound(f"{key} is not in the archive store") from error
                return
            try:
                result = obstore.get(self._store, key)
            except (failures.NotFoundError, FileNotFoundError) as error:
                self._check_absent()
                raise NotFound(f"{key} is not in the archive store") from error
            for chunk in result.stream(min_chunk_size=_READ_BYTES):
                yield bytes(chunk)

    def delete(self, key: str) -> None:
        with self._guarded(f"remove {key}"), contextlib.suppress(failures.NotFoundError, FileNotFoundError):
            if self._root is None:
                obstore.delete(self._store, key)
            else:
                files.remove(self._root / key)

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Yield the paths of all objects and incomplete uploads below a prefix."""
        with self._guarded("list the archive store"):
            if self._root is not None:
                yield from files.paths(self._root, prefix)
                return
            for page in obstore.list(self._store, prefix=prefix or None):
                for item in page:
                    yield str(item["path"])
        if self._uploads is not None:
            for upload in self._uploads.list(prefix):
                yield upload.key

    def clear(self, prefix: str) -> None:
        """Remove everything below a prefix, including incomplete uploads."""
        if self._root is not None:
            below = self._root / prefix
            with self._guarded(f"remove {prefix}"):
                remove_tree(below)
                with contextlib.suppress(OSError):  # other archives may be beside it
                    below.parent.rmdir()
            return
        self.abort_uploads(prefix)
        for path in list(self.paths(f"{prefix}/")):
            self.delete(path)

    def abort_uploads(self, prefix: str) -> None:
        """Abort incomplete uploads below a prefix."""
        if self._root is not None:
            with self._guarded(f"remove incomplete files of {prefix}"):
                for path in list(files.paths(self._root, prefix)):
                    if files.HALF in path:
                        (self._root / path).unlink(missing_ok=True)
        elif self._uploads is not None:
            for upload in self._uploads.list(f"{prefix}/"):
                self._uploads.abort(upload)

    def free_bytes(self) -> int | None:
        """Return the free space, if it can be determined."""
        if self._root is None:
            return None
        with self._guarded("read its free space"):
            found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize

    def sync(self, key: str) -> None:
        """Flush a local archive to the disk, which must happen before its volume is removed.

        Other stores confirm only durable writes.
        """
        with self._guarded(f"write {key}"):
            self._sync(key)

    def _sync(self, key: str) -> None:
        if self._root is None:
            return
        files.sync(self._root / key, self._root)


class _Produced:
    """Iterates over the chunks and remembers the producer's error, which the library would wrap."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.error: BaseException | None = None

    def __iter__(self) -> _Produced:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise


def _open_s3(access: S3Access, options: StoreOptions) -> S3Store:
    return S3Store(
        access.bucket,
        prefix=access.prefix or None,
        endpoint=access.endpoint or None,
        region=access.region,
        access_key_id=access.access_key or None,
        secret_access_key=access.secret_key or None,
        virtual_hosted_style_request=False,
        client_options=_client(options),
        retry_config=_retry(options),
    )


def _client(options: StoreOptions) -> ClientConfig:
    return {
        "allow_http": True,
        "timeout": timedelta(seconds=options.timeout_s),
        "connect_timeout": timedelta(seconds=min(10.0, options.timeout_s)),
    }


def _retry(options: StoreOptions) -> RetryConfig:
    return {
        "max_retries": options.retries,
        "retry_timeout": timedelta(seconds=options.timeout_s),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }


@contextlib.contextmanager
def _translated(place: str, doing: str) -> Iterator[None]:
    try:
        yield
    except CodeHubError:
        raise
    except (failures.PermissionDeniedError, failures.UnauthenticatedError) as error:
        raise Transient(
            f"the archive store refuses to {doing}: check its credentials and policy ({_short(error)})"
        ) from error
    except (failures.BaseError, OSError) as error:
        text = str(error)
        if any(sign in text for sign in _NO_ROOM):
            raise OutOfSpace(f"no space left in the archive store {place} to {doing}: free some space") from error
        if isinstance(error, PermissionError):
            raise Transient(f"no permission to {doing}: {_short(error)}") from error
        raise BackendDown(f"the archive store did not {doing}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split("\n\nDebug")[0].split())[:300]
