"""`references`, `callers` and `implementations`: by file, in pages within the budget, as data about as long as text."""

import json
from collections.abc import Iterator

import pytest

from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import UncancelledCall, call_tool

_FILES = 120


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = tmp_path_factory.mktemp("uses") / "tree"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/base.py").write_text("class Base:\n    pass\n\n\ndef helper(value):\n    return value\n")
    for number in range(_FILES):
        (root / f"pkg/user_{number:03}.py").write_text(
            f"from pkg.base import Base, helper\n\n\nclass User{number}(Base):\n    def run(self):\n"
            "        helper(1)\n        helper(2)\n        return helper(3)\n"
        )
    opened = open_workspace(root, tmp_path_factory.mktemp("data"))
    assert opened.index.wait_settled(120)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("tool", "name", "rows", "expected"),
    [
        ("references", "helper", "lines", 4 * _FILES + 1),
        ("callers", "helper", "lines", 3 * _FILES),
        ("implementations", "Base", "symbols", _FILES),
    ],
)
def test_all_pages_together_are_the_whole_answer_and_each_fits_its_budget(
    workspace: Workspace, tool: str, name: str, rows: str, expected: int
) -> None:
    whole = call_tool(workspace, tool, name=name, max_tokens=200_000)
    assert whole["cursor"] is None
    assert whole["total"] == expected
    seen: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    pages = 0
    while True:
        result = workspace.call(tool, {"name": name, "max_tokens": 500, **cursor}, UncancelledCall())
        note = str(result.structured["note"])
        # The note and the cursor come on top of the rows.
        assert len(json.dumps(result.structured[tool])) <= 500 * 4
        assert len(result.text) <= 500 * 4 + len(note) + 200
        files = result.structured[tool]
        assert isinstance(files, list)
        seen += [(file["path"], row) for file in files for row in file[rows]]
        pages += 1
        if result.structured["cursor"] is None:
            break
        cursor = {"cursor": str(result.structured["cursor"])}
    assert pages > 3
    assert seen == [(file["path"], row) for file in whole[tool] for row in file[rows]]
    assert len(set(seen)) == len(seen) == expected


@pytest.mark.parametrize("tool", ["references", "callers"])
def test_a_full_page_comes_without_parsing_the_files_of_later_pages(workspace: Workspace, tool: str) -> None:
    class Counted(UncancelledCall):
        parsed = 0.0

        def progress(self, done: float, total: float | None, message: str) -> None:
            self.parsed = done

    call = Counted()
    result = workspace.call(tool, {"name": "helper", "max_tokens": 500}, call)
    assert result.structured["cursor"] is not None
    assert call.parsed == 50


@pytest.mark.parametrize("tool", ["references", "callers"])
def test_as_data_it_is_about_as_long_as_as_text(workspace: Workspace, tool: str) -> None:
    result = workspace.call(tool, {"name": "helper"}, UncancelledCall())
    assert len(json.dumps(result.structured, separators=(",", ":"))) <= 1.05 * len(result.text)


def test_a_caller_is_a_line_number_with_its_text_and_the_function_around_it(workspace: Workspace) -> None:
    first = call_tool(workspace, "callers", name="helper")["callers"][0]
    assert first == {
        "path": "pkg/user_000.py",
        "lines": {
            "6": "helper(1)   [in User0.run]",
            "7": "helper(2)   [in User0.run]",
            "8": "return helper(3)   [in User0.run]",
        },
    }


def test_an_implementation_is_its_lines_kind_and_name(workspace: Workspace) -> None:
    first = call_tool(workspace, "implementations", name="Base")["implementations"][0]
    assert first == {"path": "pkg/user_000.py", "symbols": ["4-8 class User0"]}
