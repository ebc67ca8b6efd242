"""The checks that the web page shows under "Doctor": those of the index, the daemon and the installation, in one list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sari.diagnostics.daemon_checks import CHECKS
from sari.diagnostics.finding import Finding
from sari.diagnostics.machine_checks import machine_findings
from sari.protocol.deprecated import fix_fields
from sari.protocol.tooling import ToolResult
from sari.registry.layout import Layout


def collect_checks(
    index: ToolResult, layout: Layout, environment: Mapping[str, str], root: Path
) -> dict[str, object]:
    found = _of_index(index)
    found += [_shown("daemon", finding) for check in CHECKS for finding in check(layout)]
    found += [_shown("machine", finding) for finding in machine_findings(environment, root)]
    return {"ok": all(check["level"] != "error" for check in found), "checks": found}


def _of_index(result: ToolResult) -> list[dict[str, object]]:
    if result.is_error:
        return [{"name": "index", "level": "error", "detail": result.text, **fix_fields("")}]
    checks = result.structured.get("checks")
    return [
        {
            "name": f"index: {check.get('name')}",
            "level": "ok" if check.get("ok") else "error",
            "detail": check.get("detail", ""),
            **fix_fields(str(check.get("fix") or "")),
        }
        for check in (checks if isinstance(checks, list) else [])
    ]


def _shown(name: str, finding: Finding) -> dict[str, object]:
    return {"name": name, "level": finding.level, "detail": finding.what, **fix_fields(finding.fix)}
