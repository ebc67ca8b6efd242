"""Workspaces for tests of language servers, closed afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.tools.workspace import Workspace, open_workspace
from testing.sari.language_servers import Opener
from testing.sari.processes import wait_until


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    all_opened: list[Workspace] = []

    def open_one(root: Path) -> Workspace:
        workspace = open_workspace(root, tmp_path / "data")
        all_opened.append(workspace)
        assert workspace.index.wait_settled(120)
        wait_until(lambda: workspace.index.change() >= 0, "the tree is watched")
        return workspace

    yield open_one
    for workspace in all_opened:
        workspace.close()
