"""A tree without an index: ripgrep walks it for every query. For a process that ends with its answer."""

from __future__ import annotations

from sari.index import ripgrep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sari.index.ripgrep_process import Ripgrep
    from sari.index.trigram_query import TrigramQuery


class WalkedTree:
    """The files of one root. Its answers are kept until the process ends, so the tree counts as unchanged."""

    def __init__(self, root: Path, started: Ripgrep | None = None) -> None:
        self.root = root
        self._started = started

    def candidates(self, query: TrigramQuery, keep: Callable[[bytes], bool] | None = None) -> tuple[None, int]:
        """Let ripgrep walk."""
        return None, self.change()

    def walk(self, arguments: list[str], cancelled: Callable[[], bool]) -> Iterator[bytes]:
        """Search the whole tree. A search that was started with these arguments is used."""
        started, self._started = self._started, None
        if started is not None and started.arguments == arguments:
            return started.output(cancelled)
        return ripgrep.stream(arguments, self.root, cancelled)

    def change(self) -> int:
        return 0

    def status(self) -> dict[str, object]:
        # Nothing is being built, so an answer needs no note.
        return {"state": "ready"}
