"""The languages that sari parses: their names, file extensions and grammars.

A grammar is loaded when the first file of its language is parsed, and the parser with the first grammar.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Query


@dataclass(frozen=True, slots=True)
class Language:
    """One language. `names` are the names that a caller may use for it."""

    name: str
    endings: tuple[str, ...]
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


ALL = (
    Language("python", (".py", ".pyi", ".pyw"), ("py", "python3"), ("SConstruct",)),
    Language("javascript", (".js", ".mjs", ".cjs", ".jsx"), ("js", "jsx", "node")),
    Language("typescript", (".ts", ".mts", ".cts"), ("ts",)),
    Language("tsx", (".tsx",), ()),
    Language("go", (".go",), ("golang",)),
    Language("rust", (".rs",), ("rs",)),
    Language("java", (".java",), ()),
    Language("c", (".c", ".h"), ()),
    Language(
        "cpp",
        (
            ".cpp",
            ".cc",
            ".cxx",
            ".hpp",
            ".hh",
            ".hxx",
            ".c++",
            ".h++",
            ".ipp",
            ".tcc",
            ".tpp",
            ".txx",
            ".inl",
            ".cppm",
        ),
        ("c++", "cxx"),
    ),
    Language("csharp", (".cs",), ("c#", "cs", "c_sharp")),
    Language("ruby", (".rb", ".rake", ".gemspec", ".ru"), ("rb",), ("Rakefile", "Gemfile", "Vagrantfile", "Podfile")),
    Language("php", (".php", ".phtml"), ()),
    Language("kotlin", (".kt", ".kts"), ("kt",)),
    Language("swift", (".swift",), ()),
    Language(
        "bash",
        (".sh", ".bash", ".bats", ".ksh"),
        ("sh", "shell"),
        (".bashrc", ".profile", ".bash_profile", ".bash_aliases", ".bash_logout", "bash_completion"),
    ),
)

_BY_NAME = {spelled: language for language in ALL for spelled in (language.name, *language.names)}
_BY_ENDING = {ending: language for language in ALL for ending in language.endings}
_BY_FILE = {file: language for language in ALL for file in language.files}
_loading = threading.Lock()
# A header with one of these is parsed as C++.
_CPP_HEADER = re.compile(
    rb"^[ \t]*(?:class[ \t]+\w+[\w\s:<>,]{0,200}[{;]|namespace[ \t]+\w+[\w\s:]{0,200}\{|template[ \t]*<"
    rb"|using[ \t]+(?:namespace[ \t]|\w+[ \t]*[=:]))",
    re.MULTILINE,
)
# The interpreter of a script, without its version.
_SHEBANG = re.compile(rb"#![ \t]*\S*?(?:/env[ \t]+(?:-S[ \t]+)?(?:\w+=\S*[ \t]+)*(?:\S*/)?|/)(\w+?)[\d.]*(?:\s|$)")
_INTERPRETERS = {
    b"sh": "bash",
    b"bash": "bash",
    b"dash": "bash",
    b"ksh": "bash",
    b"zsh": "bash",
    b"python": "python",
    b"node": "javascript",
    b"deno": "typescript",
    b"ruby": "ruby",
    b"php": "php",
}


def named(name: str) -> Language | None:
    """Return the language with this name, such as `c++`."""
    return _BY_NAME.get(name.strip().lower())


def of_path(path: str) -> Language | None:
    """Return the language of a file, by its name."""
    file = path.rpartition("/")[2]
    return _BY_ENDING.get("." + file.rpartition(".")[2].lower() if "." in file else "") or _BY_FILE.get(file)


def may_be_script(path: str) -> bool:
    """Whether only a file's content can say its language: its name has no suffix."""
    return "." not in path.rpartition("/")[2]


def of_file(path: str, text: bytes) -> Language | None:
    """Return the language of a file, by its name and, for headers and scripts without a suffix, its content."""
    language = of_path(path)
    if language is None and may_be_script(path):
        found = _SHEBANG.match(text[:200])
        return _BY_NAME.get(_INTERPRETERS.get(found[1], "")) if found else None
    if language is not None and path.endswith(".h") and _CPP_HEADER.search(text):
        return _BY_NAME["cpp"]
    return language


def grammar(language: Language) -> Grammar:
    with _loading:
        return _grammar(language.name)


@cache
def _grammar(name: str) -> Grammar:
    if name == "csharp":
        import tree_sitter
        import tree_sitter_c_sharp

        return tree_sitter.Language(tree_sitter_c_sharp.language())
    import tree_sitter_language_pack

    return tree_sitter_language_pack.get_language(name)  # type: ignore[arg-type]


def definitions(language: Language) -> Query:
    """Return the query that finds a language's definitions."""
    with _loading:
        return _definitions(language.name)


# TSX is TypeScript with elements in its expressions, so its definitions are the same.
_SAME_QUERY = {"tsx": "typescript"}


@cache
def _definitions(name: str) -> Query:
    text = (Path(__file__).parent / "queries" / f"{_SAME_QUERY.get(name, name)}.scm").read_text()
    import tree_sitter

    return tree_sitter.Query(_grammar(name), text)
