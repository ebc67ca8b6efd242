"""`python -m testing.codehub.mutants.domain`: mutation testing of `codehub/domain` with the unit and property tests.

First the tests run once, to learn which of them run which lines. Then each change (`operators`), or a random sample of
them, is made in a copy of the source, and the tests of its line run on the copy. Prints the changes that no test noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testing.codehub.mutants.catalog import ROOT, SOURCE
from testing.codehub.mutants.operators import Change, change_at, sites

_DOMAIN: Final = SOURCE / "codehub/domain"
_TESTS: Final = ("packages/codehub/tests/unit", "packages/codehub/tests/property")
# They compare the source's text, or need servers.
_LEFT_OUT: Final = "not redis and not postgres and not planted_bug"
# Most tests of a line that everything runs learn nothing that the first ones did not.
_MOST_TESTS: Final = 60
_LONGEST_S: Final = 300

Lines = Mapping[str, Mapping[str, Sequence[int]]]  # file → test → the lines it runs


def record_lines(file: Path) -> Lines:
    if not file.exists():
        code = _pytest(["-p", "testing.codehub.mutants.lines", "-k", _LEFT_OUT, *_TESTS], SOURCE, file, 3600)
        if code != 0:
            raise SystemExit(f"the tests fail on the source as it is (pytest exited with {code})")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def tests_of(lines: Lines, file: str, change: Change) -> list[str]:
    """The tests that run the changed line, shortest first: they ran the fewest lines."""
    tests = lines.get(file, {})
    own = [test for test, numbers in tests.items() if change.line in numbers]
    return sorted(own or tests, key=lambda test: len(tests[test]))[:_MOST_TESTS]


def noticed(file: str, change: Change, tests: Sequence[str], place: Path) -> bool:
    if not tests:
        return False
    source = place / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        (source / "codehub/domain" / file).write_text(change.source, encoding="utf-8")
        return _pytest(["-x", *tests], source, place / "unused", _LONGEST_S) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        shutil.rmtree(source)


def _pytest(words: Sequence[str], source: Path, lines: Path, longest_s: float) -> int:
    common = ["-n", "0", "-q", "-p", "no:cacheprovider", "--timeout", "120"]
    environment = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "MUTANTS_LINES": str(lines)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *common, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=longest_s,
        check=False,
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testing.codehub.mutants.domain")
    parser.add_argument("--sample", type=int, default=0, help="only this many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for the random choice")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--lines", type=Path, help="which tests run which lines, as an earlier run recorded it here")
    parser.add_argument("--goal", type=float, default=0.9, help="exit with 1 below this share")
    asked = parser.parse_args()
    every = [
        (path, site)
        for path in sorted(_DOMAIN.glob("*.py"))
        if asked.only in path.name
        for site in sites(path.read_text(encoding="utf-8"))
    ]
    chosen = every
    if asked.sample:
        chosen = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
    print(f"{len(every)} changes, {len(chosen)} chosen", flush=True)
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="codehub-mutants-") as place:
        lines = record_lines(asked.lines or Path(place, "lines.json"))
        for number, (path, site) in enumerate(chosen, 1):
            change = change_at(path.read_text(encoding="utf-8"), site)
            tests = tests_of(lines, path.name, change)
            if not noticed(path.name, change, tests, Path(place)):
                survivors += 1
                why = "" if tests else "  (no test runs this file)"
                print(f"SURVIVED  {path.name}:{change.line}  {change.what}{why}", flush=True)
            elif number % 50 == 0:
                print(f"{number} of {len(chosen)}: {survivors} survived", flush=True)
    share = 1 - survivors / max(1, len(chosen))
    print(f"{len(chosen) - survivors} of {len(chosen)} changes were noticed ({share:.1%})")
    return 0 if share >= asked.goal else 1


if __name__ == "__main__":
    sys.exit(main())
