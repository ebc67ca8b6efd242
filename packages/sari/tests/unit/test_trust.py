"""Which folders Gemini CLI trusts, by its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sari.diagnostics.gemini_trust import trust_findings
from sari.install.clients import CLIENTS, Launch, Machine, Scope


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "home", platform="linux")
    file = CLIENTS["gemini"].file(Scope.USER, made, tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(CLIENTS["gemini"].put("{}", Launch("/bin/sari")))
    return made


@pytest.mark.parametrize(
    ("rules", "trusted"),
    [
        ({}, False),
        ({"work": "TRUST_FOLDER"}, True),
        ({"work/deep": "TRUST_FOLDER"}, False),
        ({".": "TRUST_FOLDER"}, True),
        ({"other": "TRUST_PARENT"}, True),
        ({".": "TRUST_FOLDER", "work": "DO_NOT_TRUST"}, False),
        ({".": "DO_NOT_TRUST", "work": "TRUST_FOLDER"}, True),
        ({"wor": "TRUST_FOLDER"}, False),
    ],
)
def test_the_longest_folder_named_decides(
    machine: Machine, tmp_path: Path, rules: dict[str, str], trusted: bool
) -> None:
    named = {str(tmp_path / path): word for path, word in rules.items()}
    (machine.home / ".gemini" / "trustedFolders.json").write_text(json.dumps(named))
    assert (trust_findings(machine, tmp_path / "work") == []) == trusted


def test_who_is_not_asked_or_does_not_use_gemini_hears_nothing(machine: Machine, tmp_path: Path) -> None:
    assert trust_findings(machine, None) == []
    trusting = Machine(machine.home, {"GEMINI_CLI_TRUST_WORKSPACE": "true"}, platform="linux")
    assert trust_findings(trusting, tmp_path) == []
    assert trust_findings(Machine(tmp_path / "nobody", platform="linux"), tmp_path) == []
    settings = machine.home / ".gemini" / "settings.json"
    settings.write_text('{"security": {"folderTrust": {"enabled": false}}, ' + settings.read_text().strip()[1:])
    assert trust_findings(machine, tmp_path) == []
    (machine.home / ".gemini" / "settings.json").write_text("{ broken")
    assert trust_findings(machine, tmp_path) == [], "another check speaks of that"
