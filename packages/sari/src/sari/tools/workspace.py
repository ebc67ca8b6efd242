"""Opens a workspace and answers its tools. The daemon's only entry point to this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sari.edits.transaction import Transactions
from sari.index import ripgrep
from sari.index.workspace_index import WorkspaceIndex
from sari.languages.symbol_index import SymbolIndex
from sari.lsp.typed import TypedAnswers
from sari.protocol.catalog import BY_NAME
from sari.protocol.tooling import Call, ToolResult
from sari.ranking.commit_messages import CommitMessages
from sari.ranking.term_index import TermIndex
from sari.registry.allowed import is_trusted
from sari.registry.programs import forget_workspace, note_workspace
from sari.tools import code, files, overview, reading
from sari.tools.arguments import Arguments, BadArguments, parse
from sari.tools.edits import answer_rename, answer_replace
from sari.tools.history import answer_history
from sari.tools.ranked import answer_ranked
from sari.tools.repo_map import RepoMap, answer_repo_map
from sari.tools.scope import Scope
from sari.tools.search import Searches, answer_search


class Workspace:
    """One root, indexed and watched until it is closed."""

    def __init__(self, root: Path, data_dir: Path) -> None:
        self._root = Path(os.path.realpath(root))
        note_workspace(self._root)
        self._index = WorkspaceIndex(self._root, data_dir)
        self._symbols = SymbolIndex(self._index)
        self._terms = TermIndex(self._index, self._symbols)
        self._types = TypedAnswers(
            self._root,
            self._index.store.folder / "servers",
            self._index.paths,
            lambda: is_trusted(data_dir, str(self._root)),
            os.environ,
        )
        self._scope = Scope(self._root, self._index, self._symbols, self._terms, self._types)
        self._searches = Searches()
        self._map = RepoMap()
        self._transactions = Transactions(data_dir / "edits")
        self._transactions.recover()
        store = self._index.store
        self._messages = CommitMessages(store.folder / "commits.db" if store.try_lock() else None)

    @property
    def root(self) -> Path:
        return self._root

    @property
    def index(self) -> WorkspaceIndex:
        return self._index

    @property
    def types(self) -> TypedAnswers:
        return self._types

    @property
    def terms(self) -> TermIndex:
        return self._terms

    def forget_answers(self) -> None:
        """Drop the answers kept for paging, so that the next search runs again."""
        self._searches = Searches()

    def call(self, tool: str, arguments: Mapping[str, object], call: Call) -> ToolResult:
        if tool not in BY_NAME:
            return _refused(f"There is no tool `{tool}`. There are: {', '.join(BY_NAME)}.")
        try:
            return self._answer(parse(tool, arguments), call)
        except (BadArguments, ripgrep.RipgrepFailed) as wrong:
            return _refused(str(wrong))
        except ripgrep.Cancelled:
            return _refused("The call was cancelled.")

    def _answer(self, arguments: Arguments, call: Call) -> ToolResult:
        scope = self._scope
        match arguments.tool:
            case "search" if arguments.text("mode") == "ranked":
                return answer_ranked(scope, arguments, call)
            case "search":
                return answer_search(scope, self._searches, arguments, call)
            case "find_files":
                return files.answer_find_files(scope, arguments, call)
            case "symbols":
                return code.answer_symbols(scope, arguments)
            case "outline":
                return reading.answer_outline(scope, arguments)
            case "references":
                return code.answer_references(scope, arguments, call)
            case "callers":
                return code.answer_callers(scope, arguments, call)
            case "implementations":
                return code.answer_implementations(scope, arguments)
            case "read":
                return reading.answer_read(scope, arguments)
            case "recent":
                return files.answer_recent(scope, arguments, call)
            case "history":
                return answer_history(scope, self._messages, arguments, call)
            case "rename_symbol":
                return answer_rename(scope, self._transactions, arguments, call)
            case "replace_symbol":
                return answer_replace(scope, self._transactions, arguments)
            case "repo_map":
                return answer_repo_map(scope, self._map, arguments)
            case "status":
                return overview.answer_status(scope)
            case "rescan":
                return overview.answer_rescan(scope)
            case "doctor":
                return overview.answer_doctor(scope)
        raise AssertionError(f"the catalogue names {arguments.tool}, but nothing answers it")

    def status(self) -> Mapping[str, object]:
        return overview.status(self._scope)

    def is_warm(self) -> bool:
        return self._index.is_warm()

    def close(self) -> None:
        self._symbols.interrupt()
        self._types.close()
        self._messages.close()
        self._terms.close()
        self._symbols.close()
        self._index.close()
        forget_workspace(self._root)


def open_workspace(root: Path, data_dir: Path) -> Workspace:
    """Open a root. The index is stored under `data_dir`, never in the workspace."""
    return Workspace(root, data_dir)


def _refused(message: str) -> ToolResult:
    return ToolResult(message, {"error": message}, is_error=True)
