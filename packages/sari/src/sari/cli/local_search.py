"""The `search` tool in this process, without an index: ripgrep walks the tree."""

from __future__ import annotations

from pathlib import Path

from sari.cli.tool_client import Answer
from sari.index.ripgrep_process import RipgrepFailed
from sari.index.walked_tree import WalkedTree
from sari.protocol.errors import SariError
from sari.tools.arguments import BadArguments, parse
from sari.tools.search import Searches, answer_search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sari.index.ripgrep_process import Ripgrep


class _Call:
    """A call that only ends with its process."""

    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


class LocalSearch:
    """The pages of one search in one workspace. `started` is a search of the whole tree that already runs."""

    def __init__(self, root: str, started: Ripgrep | None = None) -> None:
        self.root = Path(root)
        self.index = WalkedTree(self.root, started)
        self._searches = Searches()

    def page(self, arguments: Mapping[str, object]) -> Answer:
        """Return one page. Raises `SariError` as the tool would in the daemon."""
        try:
            result = answer_search(self, self._searches, parse("search", arguments), _Call())
        except (BadArguments, RipgrepFailed) as wrong:
            raise SariError(str(wrong)) from wrong
        return Answer(result.text, result.structured)
