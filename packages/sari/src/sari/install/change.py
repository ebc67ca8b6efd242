"""Installs sari into one client's file and undoes it: plan, show, then write.

A plan is a value (`Change`) that describes the complete change; `apply` carries it out. Undoing is exact: an untouched
file gets its original bytes back, and a file that was changed since loses only the installed text.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sari.install import files
from sari.install.clients import ENTRY, Client, Launch
from sari.install.errors import Refused, Unreadable
from sari.install.receipts import Receipt, Receipts, difference, digest

# Some clients rewrite their file every few seconds. Plan again with the new content.
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """The change to one file. `after` is None if the file is removed because installing created it."""

    client: Client
    found: files.Found
    after: bytes | None

    @property
    def path(self) -> Path:
        return self.found.path

    @property
    def needed(self) -> bool:
        return self.after != self.found.data

    def shown(self) -> str:
        """Return the change as a unified diff."""
        before = (self.found.data or b"").decode("utf-8", "replace").splitlines(keepends=True)
        after = (self.after or b"").decode("utf-8", "replace").splitlines(keepends=True)
        gone, made = self.after is None, self.found.data is None
        lines = difflib.unified_diff(
            before, after, "/dev/null" if made else str(self.path), "/dev/null" if gone else str(self.path)
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def plan_install(client: Client, path: Path, launch: Launch, within: Path | None = None) -> Change:
    """Return the changes that installing would make. Raises Refused for a file that cannot be parsed, and for one behind a
    link that leads out of the project that it is `within`.
    """
    try:
        found = files.find(path, within)
        after = client.put(found.text, launch)
        client.read(after)
    except Refused as error:
        raise Refused(path, error.why, client.by_hand(launch)) from error
    except Unreadable as error:
        raise Refused(path, f"it cannot be understood: {error}", client.by_hand(launch)) from error
    return Change(client, found, found.encoded(after))


def plan_uninstall(client: Client, path: Path, receipts: Receipts, within: Path | None = None) -> Change:
    """Return the changes that uninstalling would make."""
    found = files.find(path, within)
    if found.data is None:
        return Change(client, found, None)
    receipt = receipts.load(path)
    if receipt is not None and digest(found.data) == receipt.after_sha256:
        original = _original(receipt)
        if receipt.before is None or original is not None:
            return Change(client, found, original)
    try:
        text = found.text
        return Change(client, found, found.encoded(_without(client, text, receipt)))
    except Unreadable as error:
        why = f"it cannot be understood: {error}. Take the entry {ENTRY!r} out of {client.section!r} by hand"
        raise Refused(path, why) from error


def install(
    client: Client, path: Path, launch: Launch, receipts: Receipts, now: datetime, within: Path | None = None
) -> Change:
    """Install. Returns the change, which is empty if sari was already installed."""

    def carry_out(change: Change) -> bool:
        assert change.after is not None
        found = change.found
        folders = files.folders_to_make(found.real)
        backup = None if found.data is None else receipts.back_up(path, found.data, now)
        earlier = receipts.load(path)
        receipt = _receipt(change, backup, folders)
        if earlier is not None and found.data is not None:
            receipt = _second_receipt(change, earlier, receipts, now)
        # Save the receipt before the file: a crash between the two must not make undoing impossible.
        receipts.save(receipt)
        written = False
        try:
            written = files.replace(found, change.after)
        except Refused as error:
            raise Refused(path, error.why, client.by_hand(launch)) from error
        finally:
            if not written and earlier is None:
                receipts.forget(path)
            elif not written and earlier is not None:
                receipts.save(earlier)
        return written

    return _until_it_holds(lambda: plan_install(client, path, launch, within), carry_out)


def uninstall(client: Client, path: Path, receipts: Receipts, now: datetime, within: Path | None = None) -> Change:
    """Uninstall. Keeps a backup of the previous content."""

    def carry_out(change: Change) -> bool:
        found = change.found
        if found.data is None:
            return True
        receipt = receipts.load(path)
        receipts.back_up(path, found.data, now)
        if change.after is None:
            files.remove(found, receipt.made_folders if receipt else ())
        elif not files.replace(found, change.after):
            return False
        receipts.forget(path)
        return True

    change = _until_it_holds(lambda: plan_uninstall(client, path, receipts, within), carry_out)
    if not change.needed:
        receipts.forget(path)
    return change


def _until_it_holds(plan: Callable[[], Change], carry_out: Callable[[Change], bool]) -> Change:
    for _ in range(_ATTEMPTS):
        change = plan()
        if not change.needed or carry_out(change):
            return change
    raise Refused(change.path, "another program keeps changing it; close the client and try again")


def _receipt(change: Change, backup: Path | None, folders: tuple[str, ...]) -> Receipt:
    assert change.after is not None
    old, new = difference(_text(change.found.data), _text(change.after))
    before = None if backup is None else str(backup)
    return Receipt(str(change.path), change.client.name, digest(change.after), before, old, new, folders)


def _second_receipt(change: Change, earlier: Receipt, receipts: Receipts, now: datetime) -> Receipt:
    """Return the receipt of an install over an earlier one: undoing it gives the file as if there had been neither."""
    assert change.after is not None
    original = plan_uninstall(change.client, change.path, receipts, change.found.within).after
    if original is not None and not original.strip() and earlier.before is None:
        original = None  # Installing created the file, and nobody added anything.
    if original is None or digest(change.found.data or b"") == earlier.after_sha256:
        before = None if original is None else earlier.before
    else:
        before = str(receipts.back_up(change.path, original, now))
    old, new = difference(_text(original), _text(change.after))
    return Receipt(str(change.path), change.client.name, digest(change.after), before, old, new, earlier.made_folders)


def _original(receipt: Receipt) -> bytes | None:
    if receipt.before is None:
        return None
    try:
        return Path(receipt.before).read_bytes()
    except OSError:
        return None


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def _without(client: Client, text: str, receipt: Receipt | None) -> str:
    """Remove our entry: the exact installed text if it still occurs once, else by structure."""
    dropped = client.drop(text)
    if receipt is not None and receipt.new and text.count(receipt.new) == 1:
        exact = text.replace(receipt.new, receipt.old)
        try:
            if _others(client, exact) == _others(client, text):
                return exact
        except Unreadable:
            return dropped
    return dropped


def _others(client: Client, text: str) -> dict[str, object]:
    """Return everything in the file except our entry. An empty section is left out."""
    document = client.read(text)
    section = document.pop(client.section, {})
    if not isinstance(section, dict):
        raise Unreadable(1, f"{client.section!r} is not a table")
    rest = {key: value for key, value in section.items() if key != ENTRY}
    return {**document, client.section: rest} if rest else document
