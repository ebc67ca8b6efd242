"""Definitions that sari finds of those that universal-ctags lists, by language, over real repositories.

`SARI_BENCH_SOURCES` names checkouts of git repositories, separated by `:`; nothing of them is in this repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench import sari_definitions

Row = dict[str, object]
_SHOWN = 8


def measure() -> list[Row]:
    counts: dict[str, sari_definitions.Count] = {}
    for root in filter(None, os.environ.get("SARI_BENCH_SOURCES", "").split(":")):
        sari_definitions.count(Path(root), counts)
    rows: list[Row] = []
    for name, one in sorted(counts.items()):
        for missing in one.missing[:: max(1, len(one.missing) // _SHOWN)][:_SHOWN]:
            print(f"{name}: not found: {missing}", file=sys.stderr)
        for junk in one.junk[:_SHOWN]:
            print(f"{name}: not a name: {junk}", file=sys.stderr)
        listed = 1 - (len(one.missing) + one.left_out.total()) / max(1, one.listed)
        rows.append(
            {
                "what": f"{name}, {one.files:,} files",
                "value": one.recall,
                "unit": f"of {one.wanted:,}",
                "floor": 0.97,
                "junk": len(one.junk),
                "of all tags": listed,
                "left out": ", ".join(f"{reason} {count:,}" for reason, count in one.left_out.most_common()),
            }
        )
    return rows
