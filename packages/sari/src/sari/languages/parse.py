"""Parses one file: its definitions, and the role of a name at some position (a call, a definition, a comment).

Uses syntax alone: no types, no import resolution. Knows nothing of the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node, Parser, QueryCursor, Tree

from sari.languages import catalog
from sari.languages.catalog import Language
from sari.languages.declarators import declared_by, is_extern
from sari.languages.macros import (
    by_namespace,
    first_branches,
    without_annotations,
    without_conditions,
    without_macros,
)
from sari.languages.shell_functions import functions

# Larger files are usually generated, and a tree takes about ten times a file's size.
MAX_PARSED_BYTES = 4 << 20
# The most text that is parsed in order to understand a file with many errors: about a second.
_MOST_PARSED_AGAIN = 32 << 20
_HOLDERS = frozenset({"class", "struct", "interface", "trait", "impl", "enum"})
_CAPTURES_OF_KIND = ("name", "super", "container", "declarator")
_PARAMETER_PROPERTIES = ("required_parameter", "optional_parameter")
_C_FAMILY = ("c", "cpp")
_NEVER_NAMES = frozenset({"if", "else", "for", "while", "switch", "return"})
# Words that error recovery mistakes for names in text that it cannot parse.
_KEYWORDS = frozenset(
    {
        "if", "else", "for", "while", "do", "switch", "case", "return", "sizeof", "public", "private", "protected", "class",
        "struct", "union", "enum", "namespace", "template", "typename", "operator", "throw", "try", "catch", "using",
    }
)  # fmt: skip


# A row, and the first byte of a name in it and the one after the name.
Span = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition. Lines count from 1; `container` is the dotted name of the enclosing definitions."""

    name: str
    kind: str
    line: int
    end_line: int
    container: str | None
    supers: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    pattern: int
    kind: str
    name: str
    node: Node
    container: str | None
    supers: dict[str, None]


def tree_of(language: Language, text: bytes) -> Tree:
    if language.name in _C_FAMILY:
        text = without_macros(text)
    elif language.name == "swift":
        text = without_conditions(text)
    return Parser(catalog.grammar(language)).parse(text)


def symbols(language: Language, text: bytes) -> list[Symbol]:
    """Return everything that the file defines, in order."""
    if len(text) > MAX_PARSED_BYTES:
        return []
    tree = tree_of(language, text)
    found = _symbols_in(language, text, tree)
    if language.name in _C_FAMILY and _is_mostly_error(tree):
        better = _symbols_despite_errors(language, text)
        names = {symbol.name for symbol in better}
        found = sorted([*better, *(one for one in found if one.name not in names)], key=lambda one: one.line)
    elif language.name == "kotlin":
        plain = without_annotations(text)
        better = _symbols_in(language, plain, tree_of(language, plain)) if plain != text else []
        found = max(found, better, key=len)
    elif language.name == "bash" and tree.root_node.has_error:
        names = {symbol.name for symbol in found}
        missed = [
            Symbol(name, "function", line, end, None) for name, line, end in functions(text) if name not in names
        ]
        found = sorted([*found, *missed], key=lambda one: one.line)
    return found


def _symbols_despite_errors(language: Language, text: bytes) -> list[Symbol]:
    """Parse one branch of each condition; if that is not enough, one namespace at a time."""
    text = first_branches(text)
    tree = tree_of(language, text)
    found = _symbols_in(language, text, tree)
    if not _is_mostly_error(tree):
        return found
    parts = by_namespace(text, _MOST_PARSED_AGAIN)
    return (
        found
        if not parts
        else [symbol for part in parts for symbol in _symbols_in(language, part, tree_of(language, part))]
    )


def _symbols_in(language: Language, text: bytes, tree: Tree) -> list[Symbol]:
    drafts: dict[tuple[int, int, str], _Draft] = {}
    for pattern, captures in QueryCursor(catalog.definitions(language)).matches(tree.root_node):
        kind = next(name for name in captures if name not in _CAPTURES_OF_KIND and not name.startswith("_"))
        _add(drafts, pattern, kind, captures)
    rows = text.split(b"\n") if language.name == "python" else None
    return list(_nested(drafts, rows))


def _is_mostly_error(tree: Tree) -> bool:
    """Whether the parser understood less than three quarters of the file."""
    root = tree.root_node
    if not root.has_error:
        return False
    waiting, unknown = [root], 0
    while waiting:
        node = waiting.pop()
        if node.type == "ERROR":
            unknown += node.end_byte - node.start_byte
        elif node.has_error:
            waiting.extend(node.children)
    return unknown * 4 > root.end_byte


def _add(
    drafts: dict[tuple[int, int, str], _Draft], pattern: int, kind: str, captures: dict[str, list[Node]]
) -> None:
    node = captures[kind][0]
    supers = {_text(one): None for one in captures.get("super", ())}
    containers = captures.get("container")
    for declarator in captures.get("declarator", ()):
        _add_declared(drafts, pattern, kind, node, declarator, supers)
    how = _text(captures["_how"][0]) if "_how" in captures else ""
    names = [_text(name_node).removeprefix(":") for name_node in captures.get("name", ())]
    if how in ("attr_writer", "attr_accessor"):
        # Ruby's `attr_writer :name` defines the method `name=`.
        setters = [f"{name}=" for name in names]
        names = setters if how == "attr_writer" else names + setters
    for name in names:
        if not name or (kind == "function" and name in _NEVER_NAMES):
            continue
        container = _text(containers[0]) if containers else None
        if kind == "namespace" and "::" in name:
            # `namespace a::b {` defines `b` in `a`.
            outer, _, name = name.rpartition("::")
            container = outer.replace("::", ".")
        key = (node.start_byte, node.end_byte, name)
        draft = drafts.get(key)
        if draft is None:
            drafts[key] = _Draft(pattern, kind, name, node, container, supers)
            continue
        draft.supers.update(supers)
        # If several patterns match one definition, the later one in the query file is more specific.
        if pattern > draft.pattern:
            draft.pattern, draft.kind = pattern, kind


def _add_declared(
    drafts: dict[tuple[int, int, str], _Draft],
    pattern: int,
    kind: str,
    node: Node,
    declarator: Node,
    supers: dict[str, None],
) -> None:
    """Add the name that a declarator declares. C's declarations do not say whether they declare a function."""
    declared = declared_by(declarator)
    if declared is None or not declared.text or declared.text in _KEYWORDS:
        return
    if kind in ("variable", "field"):
        if declared.is_function:
            # A function's prototype, or in a class a method's or a constructor's.
            kind = "method" if kind == "field" or _is_member(node) else "function"
        elif is_extern(node):
            return
    elif kind == "function":
        if not declared.is_function:
            return
        if declared.scope is not None or declared.name.type in ("field_identifier", "destructor_name"):
            kind = "method"
    key = (node.start_byte, node.end_byte, declared.text)
    draft = drafts.get(key)
    if draft is None:
        drafts[key] = _Draft(pattern, kind, declared.text, node, declared.scope, supers)
    else:
        draft.supers.update(supers)


def _is_member(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "field_declaration_list"


def _nested(drafts: dict[tuple[int, int, str], _Draft], rows: list[bytes] | None) -> Iterator[Symbol]:
    around: list[tuple[Node, str, str]] = []
    for draft in sorted(drafts.values(), key=lambda d: (d.node.start_byte, -d.node.end_byte)):
        node = draft.node
        # Names declared by one node (`var a, b`) are siblings.
        while around and (around[-1][0].end_byte < node.end_byte or around[-1][0] == node):
            around.pop()
        container = ".".join(name for _, name, _ in around) or None
        if node.type in _PARAMETER_PROPERTIES:
            # A constructor's parameter that is a property belongs to the class.
            container = ".".join(name for _, name, _ in around[:-1]) or None
        if draft.container is not None:
            container = draft.container
        kind = draft.kind
        if kind == "function" and around and around[-1][2] in _HOLDERS:
            kind = "method"
        if kind in ("variable", "field") and draft.name.isupper() and len(draft.name) > 1:
            kind = "constant"
        if node.type != "type_definition":
            # `class Outer::Inner {` names the container of its members.
            qualified = draft.container and (kind in _HOLDERS or kind == "namespace")
            named = f"{draft.container}.{draft.name}" if qualified else draft.name
            around.append((node, named, kind))
        yield Symbol(
            draft.name, kind, node.start_point[0] + 1, _last_line(node, rows), container, tuple(draft.supers)
        )


def _last_line(node: Node, rows: list[bytes] | None) -> int:
    row, column = node.end_point
    last = row + 1 if column or row == node.start_point[0] else row
    # In Python, comments after the last statement still belong to the block, which a reader does not expect.
    while (
        rows is not None
        and last > node.start_point[0] + 1
        and (not rows[last - 1].strip() or rows[last - 1].lstrip()[:1] == b"#")
    ):
        last -= 1
    return last


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def first_error(tree: Tree) -> int | None:
    """Return the first line with a syntax error; None if there is none."""
    if not tree.root_node.has_error:
        return None
    waiting = [tree.root_node]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            return int(node.start_point[0]) + 1
        waiting.extend(child for child in reversed(node.children) if child.has_error)
    return 1


_CALLS = frozenset(
    {
        "call", "call_expression", "new_expression", "function_call_expression", "member_call_expression",
        "nullsafe_member_call_expression", "scoped_call_expression", "object_creation_expression", "method_invocation",
        "invocation_expression", "macro_invocation", "command_name", "constructor_invocation", "decorator",
    }
)  # fmt: skip
_MEMBERS = frozenset(
    {
        "attribute", "member_expression", "selector_expression", "field_expression", "scoped_identifier",
        "qualified_identifier", "navigation_expression", "navigation_suffix", "member_access_expression",
        "conditional_access_expression", "member_binding_expression", "generic_name", "template_function", "user_type",
        "generic_type", "generic_function", "qualified_name", "command_name", "scoped_type_identifier", "type_identifier",
        "scope_resolution",
    }
)  # fmt: skip
_NOT_CODE = ("comment", "string", "char_literal", "heredoc", "regex", "text")
_STILL_CODE = ("interpolation", "template_substitution", "substitution", "embedded", "interpolated_expression")
_RECEIVERS = ("receiver", "object", "scope", "operand")


def role_at(tree: Tree, row: int, start: int, end: int) -> str | None:
    """Return the role of a name: definition, call, import or use; None in comments and strings. `start`, `end`: bytes
    in the row.
    """
    node = tree.root_node.descendant_for_point_range((row, start), (row, end))
    if node is None or _is_not_code(node):
        return None
    above = node.parent
    if above is not None and _names(above, node):
        return "definition"
    if _is_called_in_macro(node):
        return "call"
    climbed = node
    while (
        above is not None
        and above.type in _MEMBERS
        and above.end_byte == climbed.end_byte
        and not any(above.child_by_field_name(field) == climbed for field in _RECEIVERS)
    ):
        climbed, above = above, above.parent
    if climbed.type == "command_name" or (
        above is not None
        and above.type in _CALLS
        and not any(above.child_by_field_name(field) == climbed for field in _RECEIVERS)
    ):
        return "call"
    return "import" if _in_import(node) else "use"


def _is_called_in_macro(node: Node) -> bool:
    """Whether a name is called inside a Rust macro, where there are only tokens: followed by parentheses or `!`."""
    if node.parent is None or node.parent.type != "token_tree":
        return False
    following = node.next_sibling
    if following is None:
        return False
    return following.type == "!" or (following.type == "token_tree" and (following.text or b"").startswith(b"("))


def _is_not_code(node: Node) -> bool:
    at: Node | None = node
    for _ in range(6):
        if at is None or any(part in at.type for part in _STILL_CODE):
            return False
        if any(part in at.type for part in _NOT_CODE) and at.type != "program_text":
            return True
        at = at.parent
    return False


def _names(above: Node, node: Node) -> bool:
    if not any(
        part in above.type
        for part in ("definition", "declaration", "_item", "_spec", "declarator", "method", "class")
    ):
        return False
    if "invocation" in above.type:
        return False
    named = above.child_by_field_name("name") or above.child_by_field_name("declarator")
    if named is None:
        # Grammars without field names (Kotlin's) put the name first.
        named = next((child for child in above.named_children if child.type.endswith("identifier")), None)
    return named == node


def _in_import(node: Node) -> bool:
    at: Node | None = node
    for _ in range(5):
        if at is None:
            return False
        if any(part in at.type for part in ("import", "use_declaration", "using_directive", "include")):
            return True
        at = at.parent
    return False
