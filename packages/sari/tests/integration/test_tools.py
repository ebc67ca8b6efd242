"""The tools, called as the daemon calls them."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sari.index.search import Query
from sari.protocol.catalog import BY_NAME, TOOLS
from sari.protocol.listing import describe
from sari.protocol.tooling import ToolResult
from sari.tools.workspace import Workspace, open_workspace
from testing.sari import trees
from testing.sari.oracle import by_ripgrep
from testing.sari.processes import wait_until

Ask = Callable[..., Any]


class OneCall:
    """A call nobody cancels."""

    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = trees.hostile(tmp_path_factory.mktemp("tools") / "tree")
    samples = Path(__file__).parent.parent / "fixtures" / "languages"
    for sample in samples.iterdir():
        (root / "lib").mkdir(exist_ok=True)
        (root / "lib" / sample.name).write_bytes(sample.read_bytes())
    (root / "node_modules").mkdir()
    (root / "node_modules/vendored.py").write_text("def helper(): pass\n")
    opened = open_workspace(root, tmp_path_factory.mktemp("data"))
    assert opened.index.wait_settled(120)
    yield opened
    opened.close()


@pytest.fixture
def ask(workspace: Workspace) -> Ask:
    def call(tool: str, **arguments: object) -> Any:
        result = workspace.call(tool, arguments, OneCall())
        assert not result.is_error, result.text
        _fits(tool, result)
        return result.structured

    return call


@pytest.fixture
def refusal(workspace: Workspace) -> Callable[..., str]:
    def call(tool: str, **arguments: object) -> str:
        result = workspace.call(tool, arguments, OneCall())
        assert result.is_error, result.text
        return result.text

    return call


def _fits(tool: str, result: ToolResult) -> None:
    """The structured content has what the output schema requires, and nothing that it does not name."""
    schema = BY_NAME[tool].output_schema
    required, properties = schema["required"], schema["properties"]
    assert isinstance(required, list)
    assert isinstance(properties, Mapping)
    assert set(required) <= set(result.structured) <= set(properties)
    json.dumps(result.structured).encode("ascii")


def test_the_catalogue_is_the_designs() -> None:
    names = "search find_files symbols outline references callers implementations read recent history repo_map"
    assert " ".join(tool.name for tool in TOOLS) == f"{names} rename_symbol replace_symbol status rescan doctor"
    for tool in TOOLS:
        properties = tool.input_schema["properties"]
        assert isinstance(properties, Mapping)
        assert "workspace" in properties


def test_the_tool_list_costs_a_model_less_than_985_tokens() -> None:
    listed = [describe(tool) for tool in TOOLS if tool.listed]
    assert not {"status", "rescan", "doctor"} & {str(tool["name"]) for tool in listed}
    seen = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed]
    # Four characters a token, as everywhere in sari: real tokenizers need fewer.
    assert len(json.dumps(seen, separators=(",", ":"))) <= 985 * 4
    for tool in listed:
        assert set(BY_NAME[str(tool["name"])].output_schema) >= {"type", "required"}


def test_an_outline_as_data_costs_no_more_than_as_text(workspace: Workspace) -> None:
    result = workspace.call("outline", {"path": "lib/sample.py"}, OneCall())
    assert len(json.dumps(result.structured)) <= 1.3 * len(result.text) + 120


@pytest.mark.parametrize(
    ("query", "max_tokens"),
    [("needle", 2_000), ("needle", 30_000), ("n", 60_000), ("needle here", 9_000), ("e", 150_000)],
)
def test_all_pages_together_are_the_whole_answer(workspace: Workspace, ask: Ask, query: str, max_tokens: int) -> None:
    wanted = by_ripgrep(workspace.root, Query(query), trees.LATE_NULS)
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while True:
        page = ask("search", query=query, max_tokens=max_tokens, **({"cursor": cursor} if cursor else {}))
        seen.extend((match["path"], match["line"]) for match in page["matches"])
        assert page["total"] == len(wanted)
        cursor = page["cursor"]
        pages += 1
        if cursor is None or (max_tokens == 2_000 and pages == 60):
            break
    shown = {(path.decode("utf-8", "backslashreplace"), line) for path, line in wanted}
    assert len(seen) == len(set(seen))
    assert set(seen) <= shown
    if cursor is None:
        assert set(seen) == shown


def test_pages_go_on_while_other_files_change(workspace: Workspace, ask: Ask) -> None:
    arguments = {"query": "return", "globs": "lib/**", "max_tokens": 100}
    before = {(m["path"], m["line"]) for m in ask("search", **{**arguments, "max_tokens": 9_000})["matches"]}
    page = ask("search", **arguments)
    seen = {(match["path"], match["line"]) for match in page["matches"]}
    extra = workspace.root / "lib" / "zz_extra.txt"
    extra.write_text("return of another\n")
    try:
        assert page["cursor"]
        while page["cursor"]:
            page = ask("search", **arguments, cursor=page["cursor"])
            seen |= {(match["path"], match["line"]) for match in page["matches"]}
        assert seen == before | {("lib/zz_extra.txt", 1)}
    finally:
        extra.unlink()


def test_definitions_come_first_and_vendored_files_last(workspace: Workspace, ask: Ask) -> None:
    in_order = {
        "ranked/z_defines.py": "import x\n\n\ndef zebra():\n    pass\n",
        "ranked/a_calls.py": "zebra()\n",
        "ranked/b_long_line.py": f"{'x' * 500} = zebra()\n",
        "ranked/tests/c_defines.py": "class zebra:\n    pass\n",
        "ranked/tests/a_calls.py": "zebra()\n",
        "ranked/node_modules/a_defines.js": "function zebra() {}\n",
        "ranked/zebra_pb2.py": "zebra = 1\n",
    }
    for path, text in in_order.items():
        (workspace.root / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / path).write_text(text)
    try:
        found = ask("search", query="zebra", globs="ranked/**")["matches"]
        assert [match["path"] for match in found] == list(in_order)
    finally:
        shutil.rmtree(workspace.root / "ranked")


def test_context_globs_and_languages_narrow_a_search(ask: Ask) -> None:
    found = ask("search", query="return", languages=["go", "c++"], context=1, globs="lib/**")
    assert {match["path"] for match in found["matches"]} == {"lib/sample.go", "lib/sample.cpp"}
    assert all(len(match["before"]) == 1 for match in found["matches"])


def test_files_are_found_fuzzily(ask: Ask) -> None:
    assert ask("find_files", query="smplkt")["files"][0]["path"] == "lib/sample.kt"
    assert ask("find_files", query="deep.py")["files"][0]["path"] == "a/b/c/deep.py"
    assert len(ask("find_files", query="", limit=5)["files"]) == 5


def test_symbols_are_found_by_name_kind_and_container(ask: Ask) -> None:
    # A busy machine may need more than one call's time to parse them all.
    wait_until(lambda: ask("symbols", query="Circle")["complete"], "every file with the name is parsed")
    circles = ask("symbols", query="Circle", kind="class")["symbols"]
    assert {row["path"] for row in circles} >= {"lib/sample.kt", "lib/sample.php", "lib/sample.ts", "lib/sample.rb"}
    assert all(row["name"] == "Circle" for row in circles)
    methods = ask("symbols", query="Derived.size", languages="python")["symbols"]
    assert [(row["path"], row["line"]) for row in methods] == [("lib/sample.py", 19)]


def test_a_symbol_just_saved_is_found_and_one_removed_is_not(workspace: Workspace, ask: Ask) -> None:
    path = workspace.root / "just_saved.py"
    path.write_text("class JustSaved:\n    pass\n")
    assert [row["line"] for row in ask("symbols", query="JustSaved")["symbols"]] == [1]
    path.write_text("\n\nclass JustSaved:\n    pass\n")
    assert [row["line"] for row in ask("symbols", query="JustSaved")["symbols"]] == [3]
    path.unlink()
    assert ask("symbols", query="JustSaved")["symbols"] == []


def test_references_leave_comments_out_and_callers_name_the_function_around(ask: Ask) -> None:
    uses = ask("references", name="helper", path="lib/sample.py")["references"]
    assert [(file["path"], list(file["lines"])) for file in uses] == [("lib/sample.py", ["19", "25"])]
    callers = ask("callers", name="helper")["callers"]
    around = {file["path"]: [text.partition("   [in ")[2] for text in file["lines"].values()] for file in callers}
    assert around["lib/sample.py"] == ["Derived.size]"]
    assert len({use["path"] for use in callers}) >= 13


def test_implementations_are_types_that_extend(ask: Ask) -> None:
    # On a busy machine the first answer may say that not every file was parsed in time.
    wait_until(lambda: ask("implementations", name="Shape")["complete"], "every file was parsed")
    found = ask("implementations", name="Shape")["implementations"]
    assert {(file["path"], re.split(r"[ .]", row)[-1]) for file in found for row in file["symbols"]} >= {
        ("lib/sample.kt", "Circle"), ("lib/sample.rs", "Circle"), ("lib/sample.php", "Circle"),
        ("lib/Sample.java", "Sample"), ("lib/sample.cpp", "Circle"), ("lib/sample.swift", "Circle"),
        ("lib/sample.ts", "Base"), ("lib/sample.ts", "Solid"),
    }  # fmt: skip


def test_reading_by_range_symbol_and_absolute_path(workspace: Workspace, ask: Ask) -> None:
    assert ask("read", path="lib/sample.py", start=3, end="4")["text"].splitlines()[0].split("\t") == [
        "     3",
        "LIMIT = 3",
    ]
    part = ask("read", path=str(workspace.root / "lib/sample.py"), symbol="Base.method")
    assert (part["start"], part["end"]) == (10, 13)
    assert "sixteen" in ask("read", path="utf16le.txt")["text"]
    assert ask("read", path="bad\\xff\\xe9name.txt")["total_lines"] == 1


def test_an_outline_is_nested(ask: Ask) -> None:
    rows = ask("outline", path="lib/sample.py")["symbols"]
    names = [row.rpartition(" ")[2] for row in rows]
    base = names.index("Base")
    assert names[base + 1 : base + 3] == ["field", "method"]
    assert not rows[base].startswith(" ")
    assert all(row.startswith(" ") and not row.startswith("  ") for row in rows[base + 1 : base + 3])


def test_a_map_fits_its_budget(workspace: Workspace, ask: Ask) -> None:
    answer = ask("repo_map", max_tokens=300)
    assert answer["files"]
    assert len(json.dumps(answer["files"])) < 300 * 4 + 400


def test_a_map_begins_with_what_the_code_depends_on(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "core.py").write_text("class QuerySet:\n" + "".join(f"    def m{n}(self): pass\n" for n in range(20)))
    (root / "filters.py").write_text("def default(x): return x\n\ndef join(x): return x\n")
    for number in range(6):
        (root / f"user{number}.py").write_text("# Join the default first.\nq = QuerySet()\nx = join(default(q))\n")
    opened = open_workspace(root, tmp_path / "data")
    assert opened.index.wait_settled(120)
    files = opened.call("repo_map", {"max_tokens": 400}, OneCall()).structured["files"]
    opened.close()
    assert isinstance(files, list)
    assert files[0] == {"path": "core.py", "symbols": ["QuerySet"]}


def test_recent_names_what_is_not_committed(workspace: Workspace, ask: Ask) -> None:
    files = ask("recent", limit=200)["files"]
    assert {"lib/sample.py"} <= {row["path"] for row in files if row["source"] == "uncommitted"}
    assert ask("recent", since="2h", limit=3)["files"]


def test_status_rescan_and_doctor(ask: Ask, workspace: Workspace) -> None:
    assert workspace.index.wait_settled(120)
    assert ask("status")["state"] == "ready"
    assert ask("rescan")["changed"] == 0
    checks = {check["name"]: check for check in ask("doctor")["checks"]}
    assert checks["segments"]["ok"]
    assert checks["ripgrep"]["ok"]


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("search", {}, "needs `query`"),
        ("search", {"query": ""}, "is empty"),
        ("search", {"query": "x", "pattern": "y"}, "no argument `pattern`"),
        ("search", {"query": "x", "mode": "fuzzy"}, "literal, regex, words"),
        ("search", {"query": "(", "mode": "regex"}, "unclosed group"),
        ("search", {"query": "x", "context": "many"}, "whole number"),
        ("search", {"query": "x", "cursor": "!!"}, "not one that sari gave"),
        ("search", {"query": "x", "languages": "klingon"}, "python"),
        ("search", {"query": 7}, "must be a string"),
        ("read", {"path": "lib/sample.py", "start": 0}, "counted from 1"),
        ("read", {"path": "lib/sample.py", "start": 999}, "has 27 lines"),
        ("read", {"path": "lib/sample.py", "symbol": "nope"}, "It defines"),
        ("read", {"path": "sample.py"}, "lib/sample.py"),
        ("read", {"path": "lib"}, "is a folder"),
        ("read", {"path": "early_nul.bin"}, "binary"),
        ("read", {"path": "../../etc/passwd"}, "outside the workspace"),
        ("read", {"path": "/etc/passwd"}, "outside the workspace"),
        ("outline", {"path": "utf8bom.txt"}, "Use `read`"),
        ("references", {"name": "two words"}, "one identifier"),
        ("symbols", {"query": "x", "kind": "gadget"}, "class"),
        ("recent", {"since": "whenever"}, "2h"),
        ("nothing", {}, "no tool `nothing`"),
    ],
)
def test_a_refusal_says_how_to_call_it_right(
    refusal: Callable[..., str], tool: str, arguments: dict[str, object], says: str
) -> None:
    assert says in refusal(tool, **arguments)


def test_links_that_lead_outside_are_refused(
    workspace: Workspace, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    (tmp_path / "secret.txt").write_text("secret needle\n")
    os.symlink(tmp_path, workspace.root / "outward")
    os.symlink(tmp_path / "secret.txt", workspace.root / "outward.txt")
    try:
        assert "leads outside" in refusal("read", path="outward/secret.txt")
        assert "leads outside" in refusal("read", path="outward.txt")
        assert "leads outside" in refusal("outline", path="outward/secret.txt")
    finally:
        (workspace.root / "outward").unlink()
        (workspace.root / "outward.txt").unlink()


def test_the_catalogue_imports_nothing_but_the_standard_library() -> None:
    probe = (
        "import sys, sari.protocol.catalog; print(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "tree_sitter", "watchdog", "asyncio", "tomlkit"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_cancelled_calls_end(workspace: Workspace) -> None:
    class Gone(OneCall):
        cancelled = True

    rng = random.Random(1)
    for query in rng.sample(["needle", "0123", "x", "e"], 4):
        assert workspace.call("search", {"query": query, "case": "insensitive"}, Gone()).is_error
