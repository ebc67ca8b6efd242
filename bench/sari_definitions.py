"""Definitions against universal-ctags, counted over whole repositories.

ctags' default kinds, by name and file. What ctags lists and a reader would not call a definition is left out by a rule,
so that the figure is about definitions; each rule looks at the syntax tree, not at the language, and the share that it
leaves out is reported.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node, Tree

from sari.languages import catalog, parse
from sari.languages.read import read_text, symbols_of

# Our name of a language and ctags' name of it. This ctags does not know Swift.
LANGUAGES = {
    "python": "Python",
    "javascript": "JavaScript",
    "typescript": "TypeScript",
    "tsx": "TypeScript",
    "go": "Go",
    "rust": "Rust",
    "java": "Java",
    "c": "C",
    "cpp": "C++",
    "csharp": "C#",
    "ruby": "Ruby",
    "php": "PHP",
    "kotlin": "Kotlin",
    "bash": "Sh",
}
# The module that a file belongs to, names that it imports, the ends of texts in shell scripts,
# the titles of tests: not definitions.
_NOT_DEFINED_HERE = frozenset(
    {"package", "packageName", "packages", "alias", "unknown", "heredoc", "describe", "context"}
)
_ANONYMOUS = re.compile(r"__anon|Anonymous|<", re.IGNORECASE)
_VARIABLES = frozenset({"variable", "constant", "property", "field", "class", "local"})
_BODY = re.compile(
    r"function|method|lambda|arrow|closure|func_literal|constructor|accessor|getter|setter|block$|do_block"
)
_TYPE = re.compile(
    r"class|interface|(?<!con)struct|enum|object_declaration|impl|trait|namespace|module|protocol|companion"
)
_LITERAL = frozenset({"object", "pair", "array", "object_type", "dictionary", "hash"})
_JUNK = frozenset(
    {"", "if", "else", "for", "while", "return", "switch", "class", "public", "private", "protected", "struct"}
)
_ANY_MEMBER_NAME = ("javascript", "typescript", "tsx")
_MOST_FILES = 2_000


@dataclass(slots=True)
class Count:
    """What was found of what ctags lists."""

    files: int = 0
    listed: int = 0
    left_out: collections.Counter[str] = field(default_factory=collections.Counter)
    missing: list[str] = field(default_factory=list)
    junk: list[str] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        return self.listed - self.left_out.total()

    @property
    def recall(self) -> float:
        return 1 - len(self.missing) / self.wanted if self.wanted else 1.0


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    line: int
    kind: str


def count(root: Path, counts: dict[str, Count]) -> None:
    """Compare all files of a repository that a language of ours is for."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True).stdout
    by_language: dict[str, list[str]] = collections.defaultdict(list)
    for path in listing.decode("utf-8", "replace").split("\0"):
        # Not a submodule, nor a link to a folder.
        there = path and (root / path).is_file()
        read = read_text(os.fsencode(root), os.fsencode(path), parse.MAX_PARSED_BYTES) if there else None
        language = catalog.of_file(path, read[0]) if read else None
        if language is not None and language.name in LANGUAGES:
            by_language[language.name].append(path)
    for name, paths in by_language.items():
        chosen = paths[:_MOST_FILES]
        tags = _tags(root, LANGUAGES[name], chosen)
        for path in chosen:
            _compare(root, name, path, tags.get(path, ()), counts.setdefault(name, Count()))


def _tags(root: Path, language: str, paths: Iterable[str]) -> dict[str, set[Tag]]:
    done = subprocess.run(
        ["ctags", "--output-format=json", "--fields=+nK", f"--language-force={language}", "-L", "-", "-f", "-"],
        input="\n".join(paths).encode(),
        capture_output=True,
        cwd=root,
        check=True,
    )
    found: dict[str, set[Tag]] = collections.defaultdict(set)
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        tag = json.loads(line)
        if tag["_type"] == "tag":
            found[tag["path"]].add(Tag(re.sub(r"\s", "", tag["name"]), tag["line"], tag["kind"]))
    return found


def _compare(root: Path, language_name: str, path: str, tags: Iterable[Tag], into: Count) -> None:
    parsed = symbols_of(os.fsencode(root), os.fsencode(path))
    names = {re.sub(r"\s", "", symbol.name) for symbol in parsed.symbols} if parsed else set()
    into.files += 1
    # JavaScript allows any word as a member's name: iterators have a method `return`.
    junk = _JUNK if language_name not in _ANY_MEMBER_NAME else {""}
    into.junk += [f"{path}: {name!r}" for name in sorted(names & junk)]
    names |= {name.lstrip("#$@:") for name in names}
    tree: Tree | None = None
    for tag in tags:
        into.listed += 1
        if last_part(tag.name) in names or tag.name in names:
            continue
        if tree is None:
            language = catalog.named(language_name)
            read = read_text(os.fsencode(root), os.fsencode(path), parse.MAX_PARSED_BYTES)
            assert language is not None
            assert read is not None
            tree = parse.tree_of(language, read[0])
        reason = why_not(tree, tag)
        if reason is None:
            into.missing.append(f"{path}:{tag.line} {tag.kind} {tag.name}")
        else:
            into.left_out[reason] += 1


def last_part(name: str) -> str:
    """Return a qualified name without its qualifier."""
    return re.split(r"[.\\]|::", name)[-1]


def why_not(tree: Tree, tag: Tag) -> str | None:
    """Return why a tag is not a definition that a reader would look for; None if it is one."""
    if tag.kind in _NOT_DEFINED_HERE or _ANONYMOUS.match(tag.name):
        return "packages, imports and unnamed"
    nodes = list(_named(tree.root_node, tag.line - 1, last_part(tag.name).encode()))
    if not nodes:
        return "not a name on that line"
    if all(_is_imported(node) for node in nodes):
        return "packages, imports and unnamed"
    if all(_is_local(node) for node in nodes) and tag.kind in _VARIABLES | {"method"}:
        return "local to a function"
    if all(_is_data(node) for node in nodes) and tag.kind in _VARIABLES:
        return "keys of data"
    if all(_is_reference(node) or _is_bound(node) for node in nodes):
        return "uses, not definitions"
    return None


def _named(root: Node, row: int, name: bytes) -> Iterator[Node]:
    """Yield the names in a row that are written so, outside comments and strings."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.start_point[0] <= row <= node.end_point[0] and "comment" not in node.type:
            if node.child_count:
                waiting.extend(node.children)
            elif (
                node.start_point[0] == row
                and (node.text or b"").lstrip(b"#$@:") == name
                and "string" not in node.type
            ):
                yield node


def _is_local(node: Node) -> bool:
    """Whether a name is inside a function's body without a type in between."""
    at, above = node, node.parent
    while above is not None:
        if _TYPE.search(above.type) and "body" not in above.type and at != above.child_by_field_name("name"):
            return False
        own = above.child_by_field_name("name") or above.child_by_field_name("declarator")
        if _BODY.search(above.type) and at != own:
            return True
        at, above = above, above.parent
    return False


def _is_imported(node: Node) -> bool:
    """Whether a name comes from another module: `import typing as t`, `const { join } = require("path")`."""
    at: Node | None = node
    while at is not None and at.type != "variable_declarator":
        if "import" in at.type:
            return True
        at = at.parent
    value = None if at is None else at.child_by_field_name("value")
    return value is not None and re.match(rb"(?:await +)?(?:require|import)\b", value.text or b"") is not None


def _is_data(node: Node) -> bool:
    at: Node | None = node
    while at is not None:
        if at.type in _LITERAL:
            return True
        at = at.parent
    return False


def _is_bound(node: Node) -> bool:
    """Whether a name is a type's base or bounds a type parameter: `where T : IRequest`."""
    at: Node | None = node
    while at is not None and "body" not in at.type and "declaration_list" not in at.type:
        if "constraint" in at.type or at.type == "base_list":
            return True
        at = at.parent
    return False


def _is_reference(node: Node) -> bool:
    """Whether a name is used where it stands: called, or followed by one of its members."""
    above = node.parent
    if above is None:
        return False
    if any(above.child_by_field_name(one) == node for one in ("object", "function", "receiver", "operand", "module")):
        return True
    further = above.parent
    return further is not None and any(
        further.child_by_field_name(one) == above for one in ("object", "function", "receiver", "right")
    )
