"""Changes several files atomically: all or none, even after a crash.

    prepare ──every new file is written beside the old──► commit ──each new file takes the old one's place──► done
       a crash here: the new files are removed              a crash here: `recover` continues

A journal outside the workspace records the progress. If another program changed a file after the commit began, the
replaced files are restored (`undo`) and that change is kept. The journal of a finished transaction is kept in order to
answer a repeated call.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sari.edits.folders import EditRefused, Folders, open_folders, read_regular
from sari.registry.locks import FileLock

MOST_FILES = 1_000
MOST_BYTES = 64 << 20
_KEPT_RECORDS = 200
_LOCK_WAIT_S = 30.0

# Inode, modification time and size.
Version = tuple[int, int, int]
State = Literal["prepare", "commit", "undo", "done"]
Checkpoint = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file: its current and its new content."""

    path: bytes
    before: bytes
    after: bytes


@dataclass(slots=True)
class _Entry:
    """One file of a journal. `path` is text with surrogates; the versions are those of the old and the new file."""

    path: str
    old: Version = (0, 0, 0)
    new: Version = (0, 0, 0)


@dataclass(slots=True)
class _Record:
    root: str
    state: State
    request: str
    result: Mapping[str, object]
    files: list[_Entry]


class Transactions:
    """The transactions of one data directory, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def applied(self, key: str) -> tuple[str, Mapping[str, object]] | None:
        """Return the request and the result of a finished transaction."""
        record = self._read(self._journal(key))
        return (record.request, record.result) if record is not None and record.state == "done" else None

    def apply(
        self,
        root: Path,
        key: str,
        request: str,
        changes: Sequence[FileChange],
        result: Mapping[str, object],
        checkpoint: Checkpoint = lambda _: None,
    ) -> Mapping[str, object]:
        """Apply the changes, or raise `EditRefused` and apply none.

        If the files already contain the changes of a transaction with this key, the call is a repetition.
        """
        with self._locked():
            self._recover()
            done = self.applied(key)
            if done is not None and done[0] == request and self._are_made(root, changes):
                return done[1]
            journal = self._journal(key)
            record = _Record(
                str(root), "prepare", request, result, [_Entry(os.fsdecode(one.path)) for one in changes]
            )
            with open_folders(root) as folders:
                transaction = _Transaction(self, journal, record, folders, checkpoint)
                transaction.run(changes)
            self._prune()
            return result

    @staticmethod
    def _are_made(root: Path, changes: Sequence[FileChange]) -> bool:
        with open_folders(root) as folders:
            try:
                return all(
                    read_regular(*folders.of(one.path), os.fsdecode(one.path), MOST_BYTES)[0] == one.after
                    for one in changes
                )
            except EditRefused:
                return False

    def forget(self, key: str) -> None:
        """Forget a finished transaction, because the same edit is begun again: its files are as they were before."""
        if self.applied(key) is not None:
            with self._locked():
                if self.applied(key) is not None:
                    self.remove(self._journal(key))

    def recover(self) -> None:
        """Finish or undo transactions that a crash interrupted. Cheap if there are none."""
        if self._folder.is_dir() and any(self._pending()):
            with self._locked():
                self._recover()

    def _recover(self) -> None:
        for journal, record in self._pending():
            if not os.path.isdir(record.root):
                self.remove(journal)
                continue
            with contextlib.suppress(OSError, EditRefused), open_folders(Path(record.root)) as folders:
                _Transaction(self, journal, record, folders, lambda _: None).go_on()

    def _pending(self) -> list[tuple[Path, _Record]]:
        found = [(path, self._read(path)) for path in sorted(self._folder.glob("*.json"))]
        return [(path, record) for path, record in found if record is not None and record.state != "done"]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with FileLock(os.fspath(self._folder / "lock")) as lock:
            lock.acquire(_LOCK_WAIT_S)
            yield

    def _journal(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    @staticmethod
    def _read(path: Path) -> _Record | None:
        try:
            raw = json.loads(path.read_bytes())
            files = [_Entry(str(one["path"]), _numbers(one["old"]), _numbers(one["new"])) for one in raw["files"]]
            return _Record(str(raw["root"]), raw["state"], str(raw["request"]), dict(raw["result"]), files)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path, record: _Record) -> None:
        """Replace a journal so that it survives a power failure."""
        temporary = path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
        self._sync()

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _prune(self) -> None:
        records = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in records[:-_KEPT_RECORDS]:
            record = self._read(path)
            if record is None or record.state == "done":
                path.unlink(missing_ok=True)


class _Transaction:
    """One journal and its files."""

    def __init__(
        self, transactions: Transactions, journal: Path, record: _Record, folders: Folders, checkpoint: Checkpoint
    ) -> None:
        self._all, self._journal, self._record = transactions, journal, record
        self._folders, self._checkpoint = folders, checkpoint

    def run(self, changes: Sequence[FileChange]) -> None:
        states = {change.path: self._verify(change) for change in changes}
        self._enter("prepare")
        try:
            for number, change in enumerate(changes):
                self._write_new(number, change, states[change.path])
            self._folders.sync()
        except BaseException as error:
            self._clean_up()
            self._all.remove(self._journal)
            if isinstance(error, OSError):
                raise EditRefused(f"Nothing was changed: {error.strerror or error}.") from error
            raise
        self._enter("commit")
        self.go_on()
        if self._record.state == "undo":
            raise EditRefused("A file changed while it was being replaced; everything was put back. Preview again.")

    def go_on(self) -> None:
        """Continue from the journal's state to the end."""
        if self._record.state == "prepare":
            self._clean_up()
            self._all.remove(self._journal)
            return
        if self._record.state == "commit" and not self._replace_all():
            self._enter("undo")
        if self._record.state == "undo":
            for number, entry in enumerate(self._record.files):
                self._put_back(number, entry)
            self._folders.sync()
            self._clean_up()
            self._all.remove(self._journal)
            return
        self._folders.sync()
        self._clean_up()
        self._enter("done")

    def _enter(self, state: State) -> None:
        self._record.state = state
        self._all.write(self._journal, self._record)
        self._checkpoint(state)

    def _verify(self, change: FileChange) -> os.stat_result:
        folder, name = self._folders.of(change.path)
        shown = os.fsdecode(change.path)
        content, state = read_regular(folder, name, shown, MOST_BYTES)
        if content != change.before:
            raise EditRefused(f"{shown} changed since the preview. Preview again.")
        return state

    def _write_new(self, number: int, change: FileChange, state: os.stat_result) -> None:
        folder, name = self._folders.of(change.path)
        new, old = self._names(number)
        entry = self._record.files[number]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(change.after)
            file.flush()
            _copy_metadata(folder, name, descriptor, state)
            os.fsync(descriptor)
            entry.new = _version(os.fstat(descriptor))
        self._checkpoint("written")
        # Keep the old file under a second name, so that it can be restored and a write to it can be detected.
        os.link(name, old, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        entry.old = _version(state)
        if _version_at(folder, old) != entry.old:
            raise EditRefused(f"{os.fsdecode(change.path)} changed since the preview. Preview again.")
        self._checkpoint("kept")

    def _names(self, number: int) -> tuple[bytes, bytes]:
        """Return the temporary names of an entry's new and old file."""
        both = f".sari-edit-{self._journal.stem[:16]}-{number}".encode()
        return both + b".new", both + b".old"

    def _replace_all(self) -> bool:
        """Move every new file into place. Returns False if a file is not the one that was prepared."""
        try:
            return all(self._replace(number, entry) for number, entry in enumerate(self._record.files))
        except (OSError, EditRefused):
            return False

    def _replace(self, number: int, entry: _Entry) -> bool:
        folder, name = self._folders.of(os.fsencode(entry.path))
        new, old = self._names(number)
        now = _version_at(folder, name)
        if now is not None and now[0] == entry.new[0]:
            return True
        if not now == entry.old == _version_at(folder, old) or _version_at(folder, new) != entry.new:
            return False
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._checkpoint("replaced")
        # Another program may have written to the old file until it was replaced.
        return _version_at(folder, old) == entry.old

    def _put_back(self, number: int, entry: _Entry) -> None:
        with contextlib.suppress(EditRefused):
            folder, name = self._folders.of(os.fsencode(entry.path))
            _, old = self._names(number)
            # A new file that was edited since contains another program's changes, so it is kept.
            if _version_at(folder, name) == entry.new and _version_at(folder, old) is not None:
                os.replace(old, name, src_dir_fd=folder, dst_dir_fd=folder)
                self._checkpoint("put back")

    def _clean_up(self) -> None:
        for number, entry in enumerate(self._record.files):
            with contextlib.suppress(EditRefused):
                folder, _ = self._folders.of(os.fsencode(entry.path))
                for extra in self._names(number):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(extra, dir_fd=folder)
                self._checkpoint("cleaned")


def _version_at(folder: int, name: bytes) -> Version | None:
    try:
        return _version(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _numbers(raw: Sequence[int]) -> Version:
    inode, time_ns, size = raw
    return int(inode), int(time_ns), int(size)


def _version(state: os.stat_result) -> Version:
    return state.st_ino, state.st_mtime_ns, state.st_size


def _copy_metadata(folder: int, name: bytes, descriptor: int, state: os.stat_result) -> None:
    """Copy mode, owner and extended attributes from the old file."""
    if (os.getuid(), os.getgid()) != (state.st_uid, state.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, state.st_uid, state.st_gid)
    os.fchmod(descriptor, state.st_mode & 0o7777)
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                for attribute in os.listxattr(source):
                    with contextlib.suppress(OSError):
                        os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
            finally:
                os.close(source)
