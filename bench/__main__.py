"""`python -m bench [NAME …]`: runs bench_NAME.measure() for each (all by default), prints tables, writes JSON.

A row is {"what", "value", "unit"} and, where there is a peer, {"peer", "ratio", "floor"}: the ratio is ours against the
peer's in the same run, the floor is the goal in docs/benchmarks.md. Figures never decide a test.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

_HERE = Path(__file__).parent
_COLUMNS = ("what", "value", "unit", "peer", "ratio", "floor")


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in _HERE.glob("bench_*.py"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())}")
    wanted = parser.parse_args().names or names()
    if unknown := sorted(set(wanted) - set(names())):
        parser.error(f"no such bench: {', '.join(unknown)}")
    failed = []
    for name in wanted:
        print(f"bench {name} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            rows = importlib.import_module(f"bench.bench_{name}").measure()
        except Exception as error:  # noqa: BLE001 - one bench that fails must not take the others' figures away
            print(f"bench {name} failed: {type(error).__name__}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        _show(name, rows, time.monotonic() - began)
    return 1 if failed else 0


def _show(name: str, rows: list[dict[str, object]], took_s: float) -> None:
    results = _HERE / "results"
    results.mkdir(exist_ok=True)
    about = {
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "took_s": round(took_s, 1),
    }
    (results / f"{name}.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    columns = [column for column in _COLUMNS if any(column in row for row in rows)]
    extra = sorted({key for row in rows for key in row} - set(_COLUMNS))
    table = Table(title=f"{name} ({took_s:.0f} s, load {os.getloadavg()[0]:.1f})")
    for column in [*columns, *extra]:
        table.add_column(column, justify="left" if column in ("what", "unit", "peer") else "right")
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in [*columns, *extra]))
    Console(width=180).print(table)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
