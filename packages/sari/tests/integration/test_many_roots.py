"""Calls about several workspaces, and about the sources of installed dependencies."""

from pathlib import Path

import pytest

from testing.sari.shim import Shim
from testing.sari.world import World


def _call(shim: Shim, tool: str, **arguments: object) -> dict[str, object]:
    result = shim.call(tool, arguments)
    assert not result["isError"], result
    structured = result["structuredContent"]
    assert isinstance(structured, dict)
    return structured


def _refusal(shim: Shim, tool: str, **arguments: object) -> str:
    result = shim.answer(shim.ask_tool(tool, arguments))["result"]
    assert isinstance(result, dict)
    assert result["isError"] is True, result
    return str(result["content"][0]["text"])


def _two(world: World) -> tuple[Path, Path, Shim]:
    first, second = world.workspace("first"), world.workspace("second")
    for root in (first, second):
        for number in range(12):
            (root / f"m{number:02}.py").write_text(f"def shared_{root.name}_{number}():\n    return 'pebble'\n")
    assert world.sari("allow", str(second)).returncode == 0
    shim = world.shim(first)
    shim.initialize()
    return first, second, shim


def test_one_call_searches_several_workspaces(world: World) -> None:
    first, second, shim = _two(world)
    both = [str(first), str(second)]
    for mode in ("literal", "ranked"):
        answer = _call(shim, "search", query="pebble", mode=mode, workspace=both, max_tokens=8000)
        rows = answer["matches"]
        assert isinstance(rows, list)
        assert {row["workspace"] for row in rows} == set(both)
    assert _call(shim, "search", query="pebble", workspace=both)["total"] == 24
    assert _call(shim, "symbols", query="shared_", workspace=both)["total"] == 24
    assert _call(shim, "find_files", query="m03.py", workspace=both)["total"] == 2
    found: list[tuple[str, str]] = []
    cursor: dict[str, object] = {}
    while True:
        page = _call(shim, "search", query="pebble", workspace=both, max_tokens=200, **cursor)
        rows = page["matches"]
        assert isinstance(rows, list)
        found += [(row["workspace"], row["path"]) for row in rows]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert len(found) == len(set(found)) == 24


def test_every_workspace_of_a_call_must_be_allowed(world: World) -> None:
    first, second, shim = _two(world)
    other = world.workspace("other")
    for named in ([str(first), str(other)], [str(other), str(second)], [str(first), "/etc"]):
        assert "sari allow" in _refusal(shim, "search", query="pebble", workspace=named)
    both = [str(first), str(second)]
    assert "one workspace" in _refusal(shim, "read", path="m00.py", workspace=both)
    assert "one workspace" in _refusal(
        shim, "replace_symbol", path="m00.py", symbol="shared_first_0", text="x = 1", workspace=both
    )
    assert "cursor" in _refusal(shim, "search", query="pebble", workspace=both, cursor="nonsense")


@pytest.mark.parametrize("folder", [".venv/lib/python3.11/site-packages/thing", "node_modules/thing"])
def test_the_sources_of_dependencies_are_read_although_they_are_ignored(world: World, folder: str) -> None:
    root = world.workspace("project")
    (root / ".gitignore").write_text("node_modules/\n.venv/\n")
    dependency = root / folder
    dependency.mkdir(parents=True)
    (root / folder.partition("/")[0] / ".gitignore").write_text("*\n")
    (dependency / "thing.py").write_text("def pebble():\n    return 1\n")
    shim = world.shim(root)
    shim.initialize()
    assert _call(shim, "search", query="pebble")["total"] == 0
    assert _call(shim, "search", query="pebble", workspace=folder)["total"] == 1
    assert _call(shim, "symbols", query="pebble", workspace=[".", folder])["total"] == 1
    arguments = {"path": "thing.py", "symbol": "pebble", "text": "def pebble():\n    return 2\n", "workspace": folder}
    assert "not changed" in _refusal(shim, "replace_symbol", **arguments)


def test_the_go_module_cache_is_read_once_it_is_allowed_and_never_changed(world: World) -> None:
    module = world.home / "go/pkg/mod/example.org/thing@v1.2.3"
    module.mkdir(parents=True)
    (module / "thing.go").write_text("package thing\n\nfunc Pebble() int { return 1 }\n")
    root = world.workspace("project", main__go="package main\n\nfunc main() { thing.Pebble() }\n")
    shim = world.shim(root)
    shim.initialize()
    cache = str(world.home / "go/pkg/mod")
    assert f"sari allow {module}" in _refusal(shim, "symbols", query="Pebble", workspace=str(module))
    assert world.sari("allow", cache).returncode == 0
    assert _call(shim, "symbols", query="Pebble", workspace=str(module))["total"] == 1
    assert _call(shim, "search", query="Pebble", workspace=[".", cache])["total"] == 2
    arguments = {"path": "thing.go", "symbol": "Pebble", "text": "func Pebble() {}\n", "workspace": str(module)}
    assert "not changed" in _refusal(shim, "replace_symbol", **arguments)
