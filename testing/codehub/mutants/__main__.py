"""`make mutants`: plants each bug in a copy of the source, runs its tests, and reports bugs that no test detects."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from testing.codehub.mutants.boundaries import BOUNDARIES
from testing.codehub.mutants.catalog import MUTANTS, ROOT, SOURCE, Mutant, mutated

# A bug may make a test hang, which also counts as detected.
_LONGEST_S = 600


def noticed(mutant: Mutant, place: Path) -> bool:
    """Return whether a test fails with the bug in the source."""
    source = place / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        (source / "codehub" / mutant.file).write_text(mutated(mutant), encoding="utf-8")
        try:
            return _run(mutant.tests, source) == 1
        except subprocess.TimeoutExpired:
            return True
    finally:
        shutil.rmtree(source)


def _run(tests: tuple[str, ...], source: Path) -> int:
    words = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "120"]
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=_LONGEST_S,
        check=False,
    ).returncode
    if code not in (0, 1):
        raise SystemExit(f"the tests could not be run (pytest exited with {code}): {' '.join(tests)}")
    return code


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--baseline", action="store_true", help="first run every named test on the source as it is")
    options = parser.parse_args()
    chosen = [mutant for mutant in (*MUTANTS, *BOUNDARIES) if options.only in mutant.name]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="codehub-mutants-") as place:
        Path(place).chmod(0o755)  # parts of a whole CodeHub are other users
        if options.baseline and _run(tuple(sorted({test for one in chosen for test in one.tests})), SOURCE) != 0:
            raise SystemExit("the tests fail on the source as it is: nothing can be said")
        for mutant in chosen:
            found = noticed(mutant, Path(place))
            print(f"{'noticed ' if found else 'SURVIVED'}  {mutant.name}", flush=True)
            if not found:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} planted bugs were noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
