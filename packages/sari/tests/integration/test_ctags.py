"""Definitions against universal-ctags: sari finds at least 97 of 100 that ctags finds, and nothing that is no name."""

import collections
import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from sari.languages.read import symbols_of

pytestmark = pytest.mark.needs("ctags")

_FIXTURES = Path(__file__).parents[1] / "fixtures/languages"
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_GO = Path("/usr/lib/go/src")
# ctags' name of a language, the kinds of it that are definitions, and where there is code.
_CASES = [
    ("Python", "cfm", sorted(_STANDARD_LIBRARY.glob("*.py"))),
    ("Go", "fcvtsin", sorted(_GO.glob("net/http/*.go")) if _GO.is_dir() else [_FIXTURES / "sample.go"]),
    ("C", "fgstumdv", [_FIXTURES / "sample.c", *sorted(_GO.glob("runtime/cgo/*.c"))]),
    ("C++", "cfgnstu", [_FIXTURES / "sample.cpp"]),
    ("JavaScript", "fcmg", [_FIXTURES / "sample.js"]),
    ("TypeScript", "ceginmfp", [_FIXTURES / "sample.ts", _FIXTURES / "sample.tsx"]),
    ("Rust", "nsgitfPM", [_FIXTURES / "sample.rs"]),
    ("Java", "cegimf", [_FIXTURES / "Sample.java"]),
    ("C#", "cEgimnps", [_FIXTURES / "Sample.cs"]),
    ("Ruby", "cfmS", [_FIXTURES / "sample.rb"]),
    ("PHP", "cfidt", [_FIXTURES / "sample.php"]),
    ("Sh", "f", [_FIXTURES / "sample.sh"]),
]
_NAME = re.compile(r"[~@$#]?[\w$]+[?!=]?|operator\s*.+|.*-.*|\[\]=?|[<>=+*/%!~^&|-]+@?")
_KEYWORDS = {"if", "for", "while", "return", "class", "public", "private", "protected", "struct", "else", "switch"}


@pytest.mark.parametrize(("language", "kinds", "files"), _CASES, ids=[case[0] for case in _CASES])
def test_definitions_are_those_of_ctags(language: str, kinds: str, files: list[Path]) -> None:
    done = subprocess.run(
        [
            "ctags",
            "--output-format=json",
            f"--language-force={language}",
            f"--kinds-{language}={kinds}",
            "-f",
            "-",
            *files,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    wanted: dict[str, set[str]] = collections.defaultdict(set)
    for line in done.stdout.splitlines():
        tag = json.loads(line)
        if tag["_type"] == "tag" and not re.match(r"__anon|Anonymous", tag["name"]):
            wanted[tag["path"]].add(re.sub(r"\s", "", tag["name"]))
    missing: list[str] = []
    total = 0
    for file in files:
        parsed = symbols_of(b"/", os.fsencode(str(file.resolve())[1:]))
        assert parsed is not None
        found = {re.sub(r"\s", "", symbol.name) for symbol in parsed.symbols}
        junk = [name for name in found if not _NAME.fullmatch(name) or name in _KEYWORDS]
        assert not junk, f"{file}: {junk}"
        total += len(wanted[str(file)])
        missing += [
            f"{file.name}:{name}"
            for name in sorted(wanted[str(file)])
            if re.split(r"[.\\]|::", name)[-1] not in found
        ]
    assert total > 0, "ctags found nothing: the test compares nothing"
    assert len(missing) <= 0.03 * total, f"{len(missing)} of {total}: {missing[:30]}"
