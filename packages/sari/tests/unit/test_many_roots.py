"""One call about several workspaces."""

import pytest

from sari.daemon.many_roots import arguments_by_root, merge, named_workspaces
from sari.protocol.tooling import ToolResult


def _answer(*rows: str, cursor: str | None = None, total: int = 0) -> ToolResult:
    found = [{"path": row} for row in rows]
    return ToolResult("text", {"matches": found, "total": total or len(rows), "complete": True, "cursor": cursor})


@pytest.mark.parametrize(
    ("value", "named"),
    [("a", None), (None, None), (["a", "b", "a"], ["a", "b"]), ('["a", "b"]', ["a", "b"]), ([1], None), ("[", None)],
)
def test_a_list_names_several(value: object, named: list[str] | None) -> None:
    assert named_workspaces(value) == named


def test_the_budget_is_divided_and_a_cursor_goes_on_where_there_is_more() -> None:
    split = arguments_by_root({"query": "x", "max_tokens": 1000, "workspace": ["a", "b"]}, ["a", "b"])
    assert split == {root: {"query": "x", "max_tokens": 500} for root in ("a", "b")}
    merged = merge("search", False, {"a": _answer("1"), "b": _answer("2", cursor="more", total=9)})
    assert merged.structured["total"] == 10
    assert [row["workspace"] for row in merged.structured["matches"]] == ["a", "b"]  # type: ignore[attr-defined]
    later = arguments_by_root({"query": "x", "max_tokens": 1000, "cursor": merged.structured["cursor"]}, ["a", "b"])
    assert later == {"b": {"query": "x", "max_tokens": 1000, "cursor": "more"}}


def test_ranked_answers_take_turns() -> None:
    merged = merge("search", True, {"a": _answer("1", "2", "3"), "b": _answer("4")})
    assert [row["path"] for row in merged.structured["matches"]] == ["1", "4", "2", "3"]  # type: ignore[attr-defined]


def test_a_workspace_that_cannot_answer_is_named() -> None:
    refused = ToolResult("no repository", {}, is_error=True)
    merged = merge("search", False, {"a": _answer("1"), "b": refused})
    assert not merged.is_error
    assert merged.structured["complete"] is False
    assert "b: no repository" in str(merged.structured["note"])
    assert merge("search", False, {"a": refused, "b": refused}).is_error
