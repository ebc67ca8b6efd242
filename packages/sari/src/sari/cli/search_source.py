"""Answers `sari search`: the daemon if the workspace is warm there, otherwise ripgrep in this process.

Starting a daemon, or opening a workspace in it, takes longer than searching a small tree. The first search therefore
answers by itself, with the tool's own code and so with the same lines in the same order. It prepares the daemon for the
next one after its answer is printed.
"""

from __future__ import annotations

import sys

from sari.cli.tool_client import Answer, call_if_warm, call_tool, workspace_root
from sari.protocol.errors import SariError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sari.cli.local_search import LocalSearch
    from sari.index.ripgrep_process import Ripgrep


class SearchSource:
    """The pages of one search."""

    def __init__(self, workspace: str | None) -> None:
        self._root = workspace_root(workspace)
        self._local: LocalSearch | None = None
        self._is_first = True

    def page(self, arguments: Mapping[str, object]) -> Answer:
        """Return one page. Raises `SariError` with the tool's error."""
        if self._is_first:
            self._is_first = False
            answer = call_if_warm("search", arguments, self._root)
            if answer is not None:
                return answer
            return self._first_page(arguments)
        if self._local is not None:
            return self._local.page(arguments)
        return call_tool("search", arguments, self._root)

    def _first_page(self, arguments: Mapping[str, object]) -> Answer:
        started = _start_ripgrep(self._root, arguments)
        try:
            # Loaded while ripgrep searches.
            from sari.cli.local_search import LocalSearch

            self._local = LocalSearch(self._root, started)
            return self._local.page(arguments)
        finally:
            if started is not None:
                started.end()

    def finish(self) -> None:
        """Open the workspace in a daemon if none has answered, without waiting for it. Called when the answer is
        printed.
        """
        if self._local is not None:
            sys.stdout.flush()
            _warm_up_in_background(self._root)


def _start_ripgrep(root: str, arguments: Mapping[str, object]) -> Ripgrep | None:
    query = str(arguments["query"])
    if not query:
        # The tool refuses it.
        return None
    from sari.index.ripgrep_process import Ripgrep, RipgrepFailed, whole_tree

    try:
        return Ripgrep(whole_tree(query, str(arguments["mode"]), str(arguments["case"])), root)
    except RipgrepFailed as failed:
        raise SariError(str(failed)) from failed


def warm_up(root: str) -> None:
    """Start a daemon if there is none, and open the workspace in it."""
    call_tool("status", {}, root)


def _warm_up_in_background(root: str) -> None:
    import subprocess

    from sari.registry.programs import python_command

    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        flags = 0
    subprocess.Popen(
        python_command("sari.cli.warm_up", root),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        creationflags=flags,
        # Closing the terminal must not end it.
        start_new_session=True,
    )
