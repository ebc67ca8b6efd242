"""`repo_map` names what the project's own code depends on, not what only shares a name with it."""

from pathlib import Path

from sari.tools.workspace import open_workspace
from testing.sari.calls import call_tool


def _map(root: Path, data: Path) -> list[str]:
    opened = open_workspace(root, data)
    try:
        assert opened.index.wait_settled(120)
        return [file["path"] for file in call_tool(opened, "repo_map", max_tokens=2_000)["files"]]
    finally:
        opened.close()


def test_a_go_name_of_another_package_or_a_method_is_not_a_use_of_ours(tmp_path: Path) -> None:
    root = tmp_path / "web"
    (root / "render").mkdir(parents=True)
    (root / "engine.go").write_text("package web\n\ntype Engine struct{}\n")
    (root / "writer.go").write_text("package web\n\ntype Writer struct{}\n")
    (root / "render/text.go").write_text("package render\n\ntype String struct{}\n\ntype Page struct{}\n")
    for number in range(8):
        (root / f"user{number}.go").write_text(
            f"package web\n\nfunc use{number}(e Engine, w http.Writer, b strings.Builder) {{\n\t_ = b.String()\n}}\n"
        )
    ranked = _map(root, tmp_path / "data")
    assert ranked[0] == "engine.go"
    (root / "user0.go").write_text("package web\n\nfunc page(p render.Page) {}\n")
    (root / "user1.go").write_text("package web\n\nfunc other(p render.Page) {}\n")
    ranked = _map(root, tmp_path / "data")
    assert ranked.index("render/text.go") < ranked.index("writer.go")


def test_bundled_dependencies_come_after_the_projects_own_files(tmp_path: Path) -> None:
    root = tmp_path / "server"
    for folder in ("src", "deps/lua"):
        (root / folder).mkdir(parents=True)
        name = folder.partition("/")[0]
        (root / folder / f"{name}_core.c").write_text(f"struct {name}_state {{ int x; }};\n")
        for number in range(3 if name == "src" else 12):
            (root / folder / f"{name}{number}.c").write_text(f"void f{number}(struct {name}_state *s) {{}}\n")
    ranked = _map(root, tmp_path / "data")
    assert [path.partition("/")[0] for path in ranked] == ["src"] * 4 + ["deps"] * 13


def test_a_method_call_is_not_a_use_of_a_function_of_that_name(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "streams.py").write_text("def close():\n    pass\n\n\ndef write():\n    pass\n")
    (root / "basket.py").write_text("def total(basket):\n    return 0\n")
    for number in range(9):
        (root / f"page{number}.py").write_text(
            "import basket\n\n\nclass Page:\n    def write(self):\n        self.close()\n        self.file.write()\n"
            "        file.close()\n        basket.total(self)\n"
        )
    ranked = _map(root, tmp_path / "data")
    assert (ranked[0], ranked[-1]) == ("basket.py", "streams.py")


def test_settings_of_tools_are_on_the_map(tmp_path: Path) -> None:
    root = tmp_path / "web"
    root.mkdir()
    for name in ("jest.config.js", "karma.conf.js", "noxfile.py", "app.js"):
        (root / name).write_text("export class App {}\n" if name == "app.js" else "")
    assert _map(root, tmp_path / "data")[0] == "app.js"
