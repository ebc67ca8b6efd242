"""Reads TOML tables strictly: checks every key's type and reports all mistakes at once, each with its location. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from codehub.domain.errors import Invalid

T = TypeVar("T")
_MOST_ITEMS = 64


@dataclass(frozen=True, slots=True)
class Mistake:
    """`where` is the key's path in the file; empty for the whole file."""

    where: str
    message: str


class Mistakes(Invalid):
    """All mistakes in one document."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("; ".join(f"{m.where}: {m.message}" if m.where else m.message for m in mistakes))
        self.mistakes = tuple(mistakes)


class TableReader:
    """Reads one table. Each key is read once, with its type; remaining keys are unknown."""

    def __init__(self, where: str, table: Mapping[str, object], mistakes: list[Mistake]) -> None:
        self.where = where
        self._table = dict(table)
        self.mistakes = mistakes

    def wrong(self, key: str, message: str) -> None:
        self.mistakes.append(Mistake(f"{self.where}.{key}" if key else self.where, message))

    def take(self, key: str, wanted: type | tuple[type, ...], described: str) -> object | None:
        value = self._table.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            self.wrong(key, f"must be {described}")
            return None
        return value

    def remaining(self) -> list[str]:
        """Return the keys that have not been read."""
        return list(self._table)

    def holds(self, key: str, wanted: type) -> bool:
        return isinstance(self._table.get(key), wanted)

    def text(self, key: str) -> str:
        value = self.take(key, str, "a string")
        return value if isinstance(value, str) else ""

    def parsed(self, key: str, parse: Callable[[str], T]) -> T | None:
        text = self.text(key)
        if not text:
            return None
        try:
            return parse(text)
        except Invalid as error:
            self.wrong(key, str(error))
            return None

    def table(self, key: str) -> TableReader | None:
        value = self.take(key, dict, "a table")
        return TableReader(f"{self.where}.{key}", value, self.mistakes) if isinstance(value, dict) else None

    def items(self, key: str, wanted: type, described: str) -> list[object]:
        value = self.take(key, list, f"a list of {described}")
        if not isinstance(value, list):
            return []
        if len(value) > _MOST_ITEMS:
            self.wrong(key, f"has at most {_MOST_ITEMS} entries")
            return []
        if not all(isinstance(item, wanted) and not isinstance(item, bool) for item in value):
            self.wrong(key, f"must be a list of {described}")
            return []
        return value

    def strings(self, key: str) -> Mapping[str, str]:
        value = self.take(key, dict, "a table of strings")
        if not isinstance(value, dict):
            return {}
        if not all(isinstance(item, str) for item in value.values()):
            self.wrong(key, "must be a table of strings")
            return {}
        return value

    def end(self, known: str) -> None:
        for key in self._table:
            self.wrong(key, f"unknown key; there are {known}")
