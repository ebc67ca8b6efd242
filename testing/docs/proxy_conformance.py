"""Writes docs/proxy-conformance.md from the conformance tests: `python -m testing.docs.proxy_conformance`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from testing.codehub.nginx import differs

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs/proxy-conformance.md"
_TESTS: Final = _ROOT / "packages/codehub/tests/integration/proxy"
_PARTS: Final = {
    "requests": "Requests forwarded to the workspace",
    "responses": "Responses forwarded to the browser",
    "tunnel": "Upgrades",
    "refusals": "Refused messages and timeouts",
}


def page() -> str:
    lines = [
        "# Proxy conformance",
        "",
        "Generated from the tests (`packages/codehub/tests/integration/proxy/test_conformance_*.py`) by",
        "`python -m testing.docs.proxy_conformance`. Each case uses raw sockets on both sides of the proxy.",
        "Where the last column says *same*, the same test also runs against nginx.",
    ]
    for part, title in _PARTS.items():
        lines += ["", f"## {title}", "", "| case | nginx |", "|---|---|"]
        module = ast.parse((_TESTS / f"test_conformance_{part}.py").read_text(encoding="utf-8"))
        lines += [f"| {words} | {other} |" for words, other in _rows(module)]
    return "\n".join(lines) + "\n"


def _rows(module: ast.Module) -> Iterator[tuple[str, str]]:
    tables = _tables(module)
    for test in module.body:
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        words = test.name.removeprefix("test_").replace("_", " ")
        count, cases = _cases(test, tables)
        has_subject = any(argument.arg in ("proxy", "upstream", "proxied") for argument in test.args.args)
        if not cases:
            times = f" ({count} cases)" if count > 1 else ""
            yield words + times, differs(test.name) or ("same" if has_subject else "only CodeHub has this setting")
        for case in cases:
            yield f"{words}: {case}", differs(test.name, case) or "same"


def _tables(module: ast.Module) -> dict[str, list[str]]:
    """Return dictionaries of cases, by name."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Dict):
            keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
            found[node.target.id] = [str(key) for key in keys]
    return found


def _cases(test: ast.FunctionDef, tables: dict[str, list[str]]) -> tuple[int, list[str]]:
    """Return (the number of cases, their names if they have any)."""
    count = 1
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.parametrize":
            values = mark.args[1]
            if isinstance(values, ast.Name) and values.id in tables:
                return len(tables[values.id]), tables[values.id]
            count *= len(values.elts) if isinstance(values, ast.List | ast.Tuple) else 1
    return count, []


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(_ROOT)}")
