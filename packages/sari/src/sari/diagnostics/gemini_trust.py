"""Checks whether Gemini CLI trusts a folder. It starts no server, not even the user's own, in an untrusted folder.

Its rules (0.61): a folder's setting applies to everything below it, the longest matching path wins, and a parent can be
trusted by naming one of its folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sari.diagnostics.finding import Finding
from sari.install.clients import CLIENTS, Machine, Scope
from sari.install.errors import InstallError
from sari.install.files import find

_FIX = "start `gemini` there once and answer that you trust the folder"


def trust_findings(machine: Machine, project: Path | None) -> list[Finding]:
    """Return a warning if Gemini CLI is configured for sari but will not start it in this folder."""
    if project is None or not _is_configured(machine, project) or _is_trusted(machine, project):
        return []
    what = f"Gemini CLI does not trust {project} yet, and starts no server there"
    return [Finding("warning", what, _FIX)]


def _is_configured(machine: Machine, project: Path) -> bool:
    client = CLIENTS["gemini"]
    for scope in Scope:
        try:
            within = project if scope is Scope.PROJECT else None
            if client.configured(find(client.file(scope, machine, project), within).text):
                return True
        except (OSError, ValueError, RecursionError, InstallError):
            # Another check reports errors in the file.
            continue
    return False


def _is_trusted(machine: Machine, project: Path) -> bool:
    if machine.environment.get("GEMINI_CLI_TRUST_WORKSPACE") == "true" or not _asks(machine):
        return True
    rules = _read(machine.moved("GEMINI_CLI_TRUSTED_FOLDERS_PATH", _folder(machine) / "trustedFolders.json"))
    here = Path(os.path.realpath(project))
    word = ""
    for path, trust in sorted(rules.items(), key=lambda rule: len(rule[0])):
        covered = os.path.dirname(path) if trust == "TRUST_PARENT" else path
        if here.is_relative_to(os.path.realpath(covered)):
            word = str(trust)
    return word in ("TRUST_FOLDER", "TRUST_PARENT")


def _asks(machine: Machine) -> bool:
    """Whether Gemini CLI checks folder trust. Its user may have disabled the check."""
    found: object = _read(_folder(machine) / "settings.json")
    for key in ("security", "folderTrust", "enabled"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found is not False


def _folder(machine: Machine) -> Path:
    return CLIENTS["gemini"].file(Scope.USER, machine, Path()).parent


def _read(file: Path) -> Mapping[str, object]:
    try:
        text = find(file).text
        found = CLIENTS["gemini"].read(text) if file.name == "settings.json" else json.loads(text)
    except (OSError, ValueError, RecursionError, InstallError):
        return {}
    return found if isinstance(found, dict) else {}
