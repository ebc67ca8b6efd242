"""Rules that stand in one place stay there: the source itself is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import codehub

SOURCE = Path(codehub.__file__).parent


def _spelled(pattern: str, *suffixes: str) -> set[str]:
    """Files of the package in which the pattern occurs."""
    return {
        str(path.relative_to(SOURCE))
        for suffix in suffixes
        for path in SOURCE.rglob(f"*{suffix}")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize(
    ("rule", "pattern", "place"),
    [
        ("where workspaces live", r"[\"'`f]/w/", "domain/routing.py"),
        ("what an id looks like", r"\[0-9a-f\]\{8\}", "domain/ids.py"),
        ("which images are allowed", r"\bis_allowed\(image", "domain/profiles.py"),
        ("how an error is worded", r"took too long without", "domain/wording.py"),
        ("how an operation is worded", r"[Rr]estoring its home", "domain/wording.py"),
        ("how a session begins", r"\.insert_session\(", "services/accounts.py"),
        ("when it sleeps", r"ttl_standby_s(econds)? \*", ""),
    ],
)
def test_a_rule_is_spelled_once(rule: str, pattern: str, place: str) -> None:
    found = _spelled(pattern, ".py", ".js") - {"domain/images.py"}
    assert found == ({place} if place else set()), rule


def test_the_dashboard_does_not_decide_which_action_is_allowed() -> None:
    script = (SOURCE / "web/static/actions.js").read_text(encoding="utf-8")
    assert "allowed_actions" in script
    assert not re.search(r"status (===|!==)|\.status\)", script.replace('ws.status === "ERROR" ? "Try again"', ""))


def test_no_part_but_the_composition_compares_a_backends_name() -> None:
    assert _spelled(r"[=!]= \"(process|local-docker|docker-volume|local-dir)\"", ".py") <= {
        "adapters/backend_set.py",
        "cli/checks.py",
    }
