"""Symbols and uses in fifteen languages: checked-in samples, and Python against its own `ast`."""

import ast
import json
import os
import re
import sysconfig
from pathlib import Path

import pytest

from sari.languages import catalog, parse
from sari.protocol.catalog import KINDS, LANGUAGES

_SAMPLES = Path(__file__).parent.parent / "fixtures" / "languages"
_EXPECTED: dict[str, list[str]] = json.loads((_SAMPLES / "expected.json").read_text())
_NAMES = sorted(path.name for path in _SAMPLES.iterdir() if path.is_file() and path.suffix != ".json")


@pytest.mark.parametrize("name", _NAMES)
def test_a_samples_symbols_are_as_expected(name: str) -> None:
    language = catalog.of_path(name)
    assert language is not None
    found = []
    for symbol in parse.symbols(language, (_SAMPLES / name).read_bytes()):
        assert symbol.kind in KINDS
        dotted = f"{symbol.container}.{symbol.name}" if symbol.container else symbol.name
        supers = f" : {' '.join(symbol.supers)}" if symbol.supers else ""
        found.append(f"{symbol.line}-{symbol.end_line} {symbol.kind} {dotted}{supers}")
    assert found == _EXPECTED[name]


@pytest.mark.parametrize("name", _NAMES)
def test_a_name_is_told_apart_in_calls_definitions_strings_and_comments(name: str) -> None:
    language = catalog.of_path(name)
    assert language is not None
    text = (_SAMPLES / name).read_bytes()
    tree = parse.tree_of(language, text)
    wanted = b"Helper" if name.endswith(".cs") else b"helper"
    roles = [
        f"{row + 1} {parse.role_at(tree, row, match.start(), match.end())}"
        for row, line in enumerate(text.split(b"\n"))
        for match in re.finditer(rb"\b" + wanted + rb"\b", line)
    ]
    assert roles == _EXPECTED[f"{name} helper"]


def test_every_language_has_a_sample() -> None:
    assert {language.name for language in catalog.ALL} == set(LANGUAGES)
    sampled = {language.name for name in _NAMES if (language := catalog.of_path(name)) is not None}
    assert sampled == set(LANGUAGES)


def test_a_header_that_speaks_cpp_is_parsed_as_cpp() -> None:
    speaks = catalog.of_file("a.h", b"#pragma once\nclass A {};\n")
    plain = catalog.of_file("a.h", b"int f(void);\n")
    assert speaks is not None
    assert plain is not None
    assert (speaks.name, plain.name) == ("cpp", "c")


# These hold syntax on purpose that only CPython's own parser takes.
_ODD = {"test_compile.py"}


def _library_files() -> list[Path]:
    library = Path(sysconfig.get_path("stdlib"))
    return sorted(
        Path(base) / name
        for base, _, names in os.walk(library)
        if not {"site-packages", "__pycache__"} & set(Path(base).parts)
        for name in names
        if name.endswith(".py")
    )


def _by_ast(text: bytes) -> set[tuple[str, bool, int, int]] | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        (node.name, isinstance(node, ast.ClassDef), node.lineno, node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    }


# The whole library, in parts so that several processes share it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_python_symbols_are_those_of_ast_on_the_whole_standard_library(part: int) -> None:
    python = catalog.named("python")
    assert python is not None
    files = _library_files()
    compared, wrong = 0, []
    for file in files[part::4]:
        text = file.read_bytes()
        wanted = _by_ast(text)
        if wanted is None or len(text) > parse.MAX_PARSED_BYTES or file.name in _ODD:
            continue
        kinds = ("class", "function", "method")
        found = {
            (s.name, s.kind == "class", s.line, s.end_line) for s in parse.symbols(python, text) if s.kind in kinds
        }
        compared += len(wanted)
        if found != wanted:
            wrong.append(f"{file}: {sorted(found ^ wanted)[:3]}")
    assert wrong == []
    assert len(files) > 1_000
    assert compared > 5_000
