"""`sari doctor`: what is wrong with this installation, and how to mend it. Changes nothing."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sari.cli.types import Subparsers

_SIGNS = {"ok": "ok     ", "warning": "warning", "error": "error  "}


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor", help="what is wrong here, and how to mend it (exit code 1: something is)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.daemon.checks import CHECKS
    from sari.registry.places import find_places

    places = find_places(os.environ)
    findings = [finding for check in CHECKS for finding in check(places)]
    if arguments.json:
        print(json.dumps([{"level": one.level, "what": one.what, "mend": one.mend} for one in findings], indent=1))
    else:
        for one in findings:
            print(f"{_SIGNS[one.level]} {one.what}" + (f"\n        → {one.mend}" if one.mend else ""))
    return 1 if any(one.level == "error" for one in findings) else 0
