"""What the page shows under "Doctor": the index's own findings, the daemon's and those around sari, in one list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sari.daemon.checks import CHECKS, Finding
from sari.install.checks import machine_findings
from sari.protocol.tooling import ToolResult
from sari.registry.places import Places


def examine(index: ToolResult, places: Places, environment: Mapping[str, str], root: Path) -> dict[str, object]:
    found = _of_index(index)
    found += [_shown("daemon", finding) for check in CHECKS for finding in check(places)]
    found += [_shown("machine", finding) for finding in machine_findings(environment, root)]
    return {"ok": all(check["level"] != "error" for check in found), "checks": found}


def _of_index(result: ToolResult) -> list[dict[str, object]]:
    if result.is_error:
        return [{"name": "index", "level": "error", "detail": result.text, "mend": ""}]
    checks = result.structured.get("checks")
    return [
        {
            "name": f"index: {check.get('name')}",
            "level": "ok" if check.get("ok") else "error",
            "detail": check.get("detail", ""),
            "mend": check.get("mend") or "",
        }
        for check in (checks if isinstance(checks, list) else [])
    ]


def _shown(name: str, finding: Finding) -> dict[str, object]:
    return {"name": name, "level": finding.level, "detail": finding.what, "mend": finding.mend}
