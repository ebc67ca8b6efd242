"""`python -m testing.codehub.mutants.domain`: mutation testing of `codehub/domain` with the unit and property tests.

First the tests run once, to learn which of them run which lines. Then each change (`operators`), or a random sample of
them, is made in memory, and the tests of its line run with it in a forked child. Prints the changes that no test noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testing.codehub.mutants.catalog import ROOT, SOURCE
from testing.codehub.mutants.forks import preload, run_changed
from testing.codehub.mutants.operators import Change, change_at, sites

_DOMAIN: Final = SOURCE / "codehub/domain"
_TESTS: Final = ("packages/codehub/tests/unit", "packages/codehub/tests/property")
# They compare the source's text, or need servers.
_LEFT_OUT: Final = "not redis and not postgres and not planted_bug"
# At a time: most tests of a line that everything runs learn nothing that the first ones did not.
_BATCH: Final = 100
_LONGEST_S: Final = 300
# None of these tests needs a server, so the plugins that start them are left out; they are slow to import.
_COMMON: Final = (
    *("-o", "addopts=", "--import-mode=importlib", "--strict-markers", "-ptesting.properties", "--assert=plain"),
    *("-p", "no:xdist", "-p", "no:cacheprovider", "-q"),
)
# Recording the lines slows a test down several times over, on a machine that may be busy.
_RECORDED, _CHANGED = ("--timeout", "600"), ("--timeout", "60")

Lines = Mapping[str, Mapping[str, Sequence[int]]]  # file → test → the lines it runs


def record_lines(file: Path) -> Lines:
    if not file.exists():
        words = [*_COMMON, *_RECORDED, "-p", "testing.codehub.mutants.lines", "-k", _LEFT_OUT, *_TESTS]
        environment = {**os.environ, "MUTANTS_LINES": str(file)}
        code = subprocess.run(
            [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, check=False
        ).returncode
        if code != 0:
            raise SystemExit(f"the tests fail on the source as it is (pytest exited with {code})")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def tests_of(lines: Lines, file: str, change: Change) -> list[str]:
    """The tests that run the changed line, shortest first: they ran the fewest lines.

    No test runs a line that runs when the module is imported. Then they are all tests of each file with a test of it.
    """
    tests = lines.get(file, {})
    own = [test for test, numbers in tests.items() if change.line in numbers]
    if not own:
        return sorted({test.partition("::")[0] for test in tests})
    return sorted(own, key=lambda test: len(tests[test]))


def check_unchanged(file: str, source: str, lines: Lines) -> None:
    """Raise unless the tests of a module pass on its own source: every change would appear to be noticed."""
    tests = sorted(lines.get(file, {}))
    if _any_fails(file, source, tests):
        raise SystemExit(f"the tests of {file} fail on the source as it is")


def noticed(file: str, change: Change, tests: Sequence[str]) -> bool:
    return _any_fails(file, change.source, tests)


def _any_fails(file: str, source: str, tests: Sequence[str]) -> bool:
    return any(_fails(file, source, tests[at : at + _BATCH]) for at in range(0, len(tests), _BATCH))


def _fails(file: str, source: str, tests: Sequence[str]) -> bool:
    module = f"codehub.domain.{file.removesuffix('.py')}"
    return run_changed(module, source, [*_COMMON, *_CHANGED, "-x", "-k", _LEFT_OUT, *tests], _LONGEST_S) != 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testing.codehub.mutants.domain")
    parser.add_argument("--sample", type=int, default=0, help="only this many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for the random choice")
    parser.add_argument(
        "--only", default=[], action="append", help="only files whose name begins so; may be repeated"
    )
    parser.add_argument("--lines", type=Path, help="which tests run which lines, as an earlier run recorded it here")
    parser.add_argument("--goal", type=float, default=0.9, help="exit with 1 below this share")
    options = parser.parse_args()
    # Read once: somebody may work on the files meanwhile.
    sources = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(_DOMAIN.glob("*.py"))
        if not options.only or path.name.startswith(tuple(options.only))
    }
    every = [(file, site) for file, source in sources.items() for site in sites(source)]
    chosen = every
    if options.sample:
        chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    print(f"{len(every)} changes, {len(chosen)} chosen", flush=True)
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="codehub-mutants-") as place:
        lines = record_lines(options.lines or Path(place, "lines.json"))
        preload([*_COMMON, *_TESTS])
        for file in sorted({file for file, _ in chosen}):
            check_unchanged(file, sources[file], lines)
        for number, (file, site) in enumerate(chosen, 1):
            change = change_at(sources[file], site)
            tests = tests_of(lines, file, change)
            if not noticed(file, change, tests):
                survivors += 1
                why = "" if tests else "  (no test runs this file)"
                print(f"SURVIVED  {file}:{change.line}  {change.what}{why}", flush=True)
            elif number % 50 == 0:
                print(f"{number} of {len(chosen)}: {survivors} survived", flush=True)
    share = 1 - survivors / max(1, len(chosen))
    print(f"{len(chosen) - survivors} of {len(chosen)} changes were noticed ({share:.1%})")
    return 0 if share >= options.goal else 1


if __name__ == "__main__":
    sys.exit(main())
