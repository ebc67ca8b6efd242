"""`rename_symbol` and `replace_symbol`: shown first, made in all files or in none, never outside the workspace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import call_tool, refusal_of
from testing.sari.trees import tree_bytes

_SHOP = (
    "def total(cart):\n    # total of a cart\n    return sum(cart)\n\n\n"
    "class Cart:\n    def add(self, item):\n        self.items.append(item)\n"
)
_USE = "from shop import total\n\n\ndef bill(cart):\n    return f'{total(cart)} total'\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "shop.py").write_text(_SHOP)
    (root / "bill.py").write_text(_USE)
    (root / "other.js").write_text("function total() {}\n")
    return root


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    yield opened
    opened.close()


RENAME = {"name": "shop.total", "new_name": "grand_total", "path": "."}


def _rename(workspace: Workspace, **more: object) -> dict[str, object]:
    answer = call_tool(workspace, "rename_symbol", **{**RENAME, **more})
    assert isinstance(answer, dict)
    return answer


def test_a_rename_is_shown_and_then_made(workspace: Workspace, root: Path) -> None:
    before = tree_bytes(root)
    shown = _rename(workspace)
    assert tree_bytes(root) == before
    assert not shown["applied"]
    assert [row["path"] for row in shown["files"]] == ["bill.py", "shop.py"]  # type: ignore[attr-defined]
    assert "2 mentions in comments and strings" in str(shown["note"])
    assert "+def grand_total(cart):" in str(shown["files"])
    made = _rename(workspace, apply=shown["preview"])
    assert made["applied"]
    assert (root / "shop.py").read_text() == _SHOP.replace("def total", "def grand_total")
    assert (root / "bill.py").read_text() == _USE.replace("import total", "import grand_total").replace(
        "{total", "{grand_total"
    )
    assert call_tool(workspace, "symbols", query="grand_total")["total"] == 1
    assert len(tree_bytes(root)) == len(before), "nothing is left beside the files"


@pytest.mark.parametrize("change", ["edited", "gone", "new use"])
def test_a_file_that_changed_since_the_preview_is_not_overwritten(
    workspace: Workspace, root: Path, change: str
) -> None:
    preview = _rename(workspace)["preview"]
    if change == "edited":
        (root / "bill.py").write_text(_USE + "# more\n")
    elif change == "gone":
        (root / "bill.py").unlink()
    else:
        (root / "more.py").write_text("from shop import total\n")
    before = tree_bytes(root)
    said = refusal_of(workspace, "rename_symbol", **{**RENAME, "apply": preview})
    assert "changed since" in said
    assert tree_bytes(root) == before


def test_an_edit_is_made_once_for_each_key(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    preview = _rename(workspace)["preview"]
    for key in ({}, {"key": "k1"}):
        first = _rename(workspace, apply=preview, **key)
        made = tree_bytes(root)
        for again in (workspace, None):
            opened = again or open_workspace(root, tmp_path / "data")
            repeated = _rename(opened, apply=preview, **key)
            assert repeated["files"] == first["files"]
            assert "before" in str(repeated["note"])
            assert tree_bytes(root) == made
            if again is None:
                opened.close()
        # The same edit of the same files is another one once it was taken back.
        (root / "shop.py").write_text(_SHOP)
        (root / "bill.py").write_text(_USE)
        assert _rename(workspace)["preview"] == preview
    assert _rename(workspace, apply=preview)["applied"]
    assert tree_bytes(root) == made


def test_an_edit_that_was_undone_and_previewed_again_is_a_new_one(workspace: Workspace, root: Path) -> None:
    before = tree_bytes(root)
    preview = _rename(workspace)["preview"]
    _rename(workspace, apply=preview)
    for name, content in before.items():
        (root / name).write_bytes(content)
    assert _rename(workspace)["preview"] == preview
    (root / "bill.py").write_text(_USE + "total([1])\n")
    changed = tree_bytes(root)
    assert "changed since" in refusal_of(workspace, "rename_symbol", **RENAME, apply=preview)
    assert tree_bytes(root) == changed


def test_a_key_of_another_edit_is_refused(workspace: Workspace, root: Path) -> None:
    arguments = {"path": "shop.py", "symbol": "total", "text": "def total(cart):\n    return 0\n"}
    preview = call_tool(workspace, "replace_symbol", **arguments)["preview"]
    call_tool(workspace, "replace_symbol", **arguments, apply=preview, key="k")
    other = {"path": "bill.py", "symbol": "bill", "text": "def bill(cart):\n    return 0\n"}
    preview = call_tool(workspace, "replace_symbol", **other)["preview"]
    assert "another edit" in refusal_of(workspace, "replace_symbol", **other, apply=preview, key="k")


def test_an_ambiguous_name_is_refused(workspace: Workspace, root: Path) -> None:
    (root / "deep").mkdir()
    (root / "deep/b.py").write_text("def total():\n    return 1\n")
    said = refusal_of(workspace, "rename_symbol", name="total", new_name="x")
    assert "shop.py:1" in said
    assert "deep/b.py:1" in said
    narrowed = call_tool(workspace, "rename_symbol", name="total", new_name="x", path="deep")
    assert [row["path"] for row in narrowed["files"]] == ["deep/b.py"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"new_name": "class"}, "reserved"),
        ({"new_name": "a b"}, "identifier"),
        ({"new_name": "total"}, "the same"),
        ({"new_name": "Cart"}, "already defined"),
        ({"name": "nowhere"}, "defined in the workspace"),
        ({"path": "../elsewhere"}, "outside"),
        ({"apply": "0123456789abcdef"}, "changed since"),
    ],
)
def test_a_wrong_rename_is_explained(workspace: Workspace, arguments: dict[str, str], says: str) -> None:
    assert says in refusal_of(workspace, "rename_symbol", **{**RENAME, **arguments})


@pytest.mark.parametrize(
    ("file", "text", "reserved"),
    [
        ("a.go", "package a\n\nfunc plum() int { return 1 }\n\nvar x = plum()\n", "range"),
        ("a.rs", "fn plum() -> i32 { 1 }\n\nfn user() -> i32 { plum() }\n", "match"),
        ("A.java", "class A {\n  int plum() { return 1; }\n  int user() { return plum(); }\n}\n", "package"),
        ("a.c", "int plum(void) { return 1; }\nint user(void) { return plum(); }\n", "typedef"),
        ("a.ts", "function plum() { return 1 }\nconst x = plum()\n", "typeof"),
        ("A.cs", "class A { int plum() { return 1; } int User() { return plum(); } }\n", "namespace"),
        ("a.rb", "def plum\n  1\nend\n\nplum()\n", "unless"),
        ("a.kt", "fun plum(): Int = 1\nval x = plum()\n", "when"),
    ],
)
def test_a_word_that_the_language_reserves_is_no_new_name(
    workspace: Workspace, root: Path, file: str, text: str, reserved: str
) -> None:
    (root / file).write_text(text)
    said = refusal_of(workspace, "rename_symbol", name="plum", new_name=reserved)
    assert f"{reserved!r} is a reserved word in" in said


@pytest.mark.parametrize("tool", ["rename_symbol", "replace_symbol"])
def test_a_read_only_file_is_not_changed(workspace: Workspace, root: Path, tool: str) -> None:
    (root / "shop.py").chmod(0o444)
    replaced = {"path": "shop.py", "symbol": "total", "text": "def total(cart):\n    return 1\n"}
    said = refusal_of(workspace, tool, **(RENAME if tool == "rename_symbol" else replaced))
    assert "shop.py is read-only" in said


@pytest.mark.parametrize("tool", ["rename_symbol", "replace_symbol"])
def test_a_file_in_another_encoding_takes_ascii_only(workspace: Workspace, root: Path, tool: str) -> None:
    (root / "shop.py").write_bytes(_SHOP.replace("a cart", "a café").encode("latin-1"))
    replaced = {"path": "shop.py", "symbol": "total", "text": "def total(cart):\n    return 'é'\n"}
    arguments = {**RENAME, "new_name": "été"} if tool == "rename_symbol" else replaced
    assert "shop.py is not UTF-8" in refusal_of(workspace, tool, **arguments)
    ascii_only = {key: value.replace("é", "e") for key, value in arguments.items()}
    assert not call_tool(workspace, tool, **ascii_only)["applied"]


def test_a_definition_is_replaced_in_the_files_own_form(workspace: Workspace, root: Path) -> None:
    (root / "win.py").write_bytes(b"\xef\xbb\xbf" + _SHOP.replace("\n", "\r\n").encode())
    arguments = {"path": "win.py", "symbol": "Cart.add", "text": "def add(self, item):\n    return item\n"}
    preview = call_tool(workspace, "replace_symbol", **arguments)
    assert "+        return item" in preview["files"][0]["diff"]
    call_tool(workspace, "replace_symbol", **arguments, apply=preview["preview"])
    expected = _SHOP.replace("        self.items.append(item)", "        return item").replace("\n", "\r\n")
    assert (root / "win.py").read_bytes() == b"\xef\xbb\xbf" + expected.encode()


def test_decorators_are_replaced_with_their_function(workspace: Workspace, root: Path) -> None:
    (root / "d.py").write_text("@a\n@b\ndef f():\n    pass\n\n\nx = 1\n")
    for text, expected in (
        ("def f():\n    return 1", "@a\n@b\ndef f():\n    return 1\n\n\nx = 1\n"),
        ("@c\ndef f():\n    return 2", "@c\ndef f():\n    return 2\n\n\nx = 1\n"),
    ):
        arguments = {"path": "d.py", "symbol": "f", "text": text}
        call_tool(
            workspace,
            "replace_symbol",
            **arguments,
            apply=call_tool(workspace, "replace_symbol", **arguments)["preview"],
        )
        assert (root / "d.py").read_text() == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"text": "def total(cart:\n"}, "syntax error"),
        ({"text": " \n"}, "empty"),
        ({"symbol": "nothing"}, "defines no"),
        ({"path": "node_modules/a/index.js", "symbol": "f"}, "dependency"),
        ({"path": "lib/site-packages/a.py", "symbol": "f"}, "dependency"),
        ({"path": "link.py"}, "link"),
        ({"path": "linked/c.py", "symbol": "f"}, "link"),
        ({"path": "/etc/passwd"}, "outside"),
        ({"path": "one.py", "symbol": "a"}, "shares line"),
    ],
)
def test_a_wrong_replacement_is_explained_and_changes_nothing(
    workspace: Workspace, root: Path, tmp_path: Path, arguments: dict[str, str], says: str
) -> None:
    for name in ("node_modules/a/index.js", "lib/site-packages/a.py", "inner/c.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("def f():\n    pass\n" if name.endswith("py") else "function f() {}\n")
    (root / "one.py").write_text("a = 1; b = 2\n")
    (root / "link.py").symlink_to("shop.py")
    (root / "linked").symlink_to("inner")
    before = tree_bytes(root)
    said = refusal_of(
        workspace,
        "replace_symbol",
        **{"path": "shop.py", "symbol": "total", "text": "def total(): pass", **arguments},
    )
    assert says in said
    assert tree_bytes(root) == before
