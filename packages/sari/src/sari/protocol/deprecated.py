"""Old names of JSON fields, still sent beside the new ones for one release so that scripts keep working."""

from __future__ import annotations


def fix_fields(fix: str) -> dict[str, str]:
    """Return the fields that say how to fix a problem: `fix`, and `mend`, its name in version 3.0."""
    return {"fix": fix, "mend": fix}
