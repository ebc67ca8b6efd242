"""Extracts names from C and C++ declarators, Rust types and other syntax that wraps a name.

`int *(*table[8])(void)` declares `table`: the name is at the end of a chain of pointers, arrays and parameters. A query
cannot follow a chain of arbitrary length, so it captures the outermost link and this module follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

_NAMES = frozenset(
    {
        "identifier", "field_identifier", "type_identifier", "operator_name", "destructor_name", "primitive_type",
        "namespace_identifier", "simple_identifier",
    }
)  # fmt: skip
# The fields of a link that lead to the name.
_INNER_FIELDS = ("declarator", "name", "type")
_LONGEST_CHAIN = 30


@dataclass(frozen=True, slots=True)
class Declared:
    """The name that a declarator declares. `scope` is the part before `::`."""

    name: Node
    text: str
    is_function: bool
    scope: str | None


def declared_by(node: Node) -> Declared | None:
    """Return the name at the end of a declarator; None if it has none (`int (*)(void)`)."""
    is_function = is_pointer = False
    scopes: list[str] = []
    for _ in range(_LONGEST_CHAIN):
        if node.type in _NAMES:
            return Declared(node, _text(node), is_function, ".".join(scopes) or None)
        if node.type == "operator_cast":
            return Declared(node, " ".join(_text(node).partition("(")[0].split()), True, ".".join(scopes) or None)
        if node.type == "function_declarator":
            # `(*callback)(int)` is a variable: the called expression is a pointer.
            inner = node.child_by_field_name("declarator")
            is_pointer = inner is not None and inner.type == "parenthesized_declarator" and _has_pointer(inner)
            is_function = not is_pointer
        elif node.type == "qualified_identifier":
            scope = node.child_by_field_name("scope")
            if scope is not None:
                scopes.append(_text(scope).partition("<")[0])
        following = next(
            (inner for field in _INNER_FIELDS if (inner := node.child_by_field_name(field)) is not None), None
        )
        if following is None:
            # The only child of a reference or a parenthesized declarator has no field name.
            following = next((child for child in node.named_children if "comment" not in child.type), None)
        if following is None:
            return None
        node = following
    return None


def _has_pointer(node: Node) -> bool:
    return any(child.type in ("pointer_declarator", "block_pointer_declarator") for child in node.named_children)


def is_extern(node: Node) -> bool:
    """Whether a declaration only declares something that is defined elsewhere."""
    return any(
        child.type == "storage_class_specifier" and child.text == b"extern" for child in node.children
    ) and not any(child.type == "init_declarator" for child in node.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
