"""A tree without an index: ripgrep walks it for every query. For a process that ends with its answer."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sari.index.trigram_query import TrigramQuery


class WalkedTree:
    """The files of one root. Its answers are kept until the process ends, so the tree counts as unchanged."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def candidates(self, query: TrigramQuery, keep: Callable[[bytes], bool] | None = None) -> tuple[None, int]:
        """Let ripgrep walk."""
        return None, self.change()

    def change(self) -> int:
        return 0

    def status(self) -> dict[str, object]:
        # Nothing is being built, so an answer needs no note.
        return {"state": "ready"}
