"""Blanks C and C++ macros and Swift conditions that hide a definition from a parser that does not evaluate them. Pure.

To a grammar that does not know macros, `class LEVELDB_EXPORT Status {` looks like a function named Status. The
replacement is as long as the macro, so that all positions in the text stay the same.
"""

from __future__ import annotations

import re

# Names that begin with underscores are the standard library's own (`_GLIBCXX_NOEXCEPT`).
_MACRO = rb"_{0,2}[A-Z][A-Z0-9]*_[A-Z0-9_]*\b|[A-Z][A-Z0-9]{2,}\b"
_ARGUMENTS = rb"(?:[ \t]*\([^()\n]*\))?"
# `class EXPORT Name`: a class has one name. `final` after a name is not a name.
_BEFORE_CLASS_NAME = re.compile(
    rb"\b(?:class|struct|union|enum|enum[ \t]+class|namespace)[ \t]+((?:" + _MACRO + rb")" + _ARGUMENTS + rb")"
    rb"(?=[ \t\n]+(?!final\b|sealed\b)[A-Za-z_])"
)
# `API_EXPORT void f()`: a type with such a name is never followed by another type.
_BEFORE_TYPE = re.compile(
    rb"(?<![\w.>])((?:"
    + _MACRO
    + rb")"
    + _ARGUMENTS
    + rb")(?=\s+(?:void|int|bool|auto|char|inline|static|constexpr|const|class|struct"
    rb"|template|unsigned|signed|virtual|explicit|friend|typename|using|enum|double|float|long|short|size_t|typedef|operator"
    rb"|std::|u?int(?:8|16|32|64)_t)\b)"
)
# `API_EXPORT Status f(`: two names before the function's own, of which the first cannot be a type.
_BEFORE_FUNCTION = re.compile(
    rb"(?<![\w.>])((?:"
    + _MACRO
    + rb")"
    + _ARGUMENTS
    + rb")(?=[ \t]+[A-Za-z_][\w:]*(?:<[\w:,* \t]*>)?[ \t]{0,8}[*&]{0,3}[ \t\n]{1,40}"
    rb"[A-Za-z_]\w*[ \t]*\()"
)
# `namespace std VISIBILITY(default) {`
_AFTER_NAMESPACE = re.compile(rb"\bnamespace[ \t]+[\w:]+[ \t]+((?:" + _MACRO + rb")" + _ARGUMENTS + rb")(?=\s*\{)")
# `f() const NOEXCEPT {`: only macros named after a specifier, because `if (failed) ABORT();` is a call.
_AFTER_PARAMETERS = re.compile(
    rb"\)\s*(?:const\b\s*)?(\b\w*(?:NOEXCEPT|NOTHROW|OVERRIDE|FINAL|ATTRIBUTE|_REQUIRES|_PURE)\w*"
    + _ARGUMENTS
    + rb")"
    rb"(?=\s*(?:[{;:=]|const\b|override\b|final\b|->))"
)
# `BEGIN_NAMESPACE` alone on a line, not indented: an enumerator would be indented.
_ALONE = re.compile(rb"^(" + _MACRO + rb")[ \t]*\r?$", re.MULTILINE)
# `NODISCARD` alone on a line before the declaration that it belongs to: an enumerator is followed by `,` or `}`.
_ALONE_BEFORE = re.compile(rb"^[ \t]+(" + _MACRO + rb")[ \t]*\r?\n(?=[ \t]*[A-Za-z_~])", re.MULTILINE)
# `struct handle { HANDLE_FIELDS };`
_FIELDS = re.compile(
    rb"\b(?:struct|union|class)[ \t]+\w+\s*\{\s*((?:" + _MACRO + rb")(?:\s+(?:" + _MACRO + rb"))*)(?=\s*\})"
)
_PATTERNS = (
    _BEFORE_CLASS_NAME,
    _AFTER_NAMESPACE,
    _AFTER_PARAMETERS,
    _FIELDS,
    _ALONE_BEFORE,
    _BEFORE_TYPE,
    _BEFORE_FUNCTION,
    _ALONE,
)


def without_macros(text: bytes) -> bytes:
    """Return the text with such macros blanked."""
    for pattern in _PATTERNS:
        text = pattern.sub(_blanked, text)
    return text


# The grammar accepts Swift's conditions among statements, but not among the members of a type.
_SWIFT_CONDITION = re.compile(rb"^[ \t]*#(?:if|elseif|else|endif)\b[^\n]*", re.MULTILINE)


def without_conditions(text: bytes) -> bytes:
    """Return Swift text with `#if`, `#elseif`, `#else` and `#endif` blanked: all branches are parsed."""
    return _SWIFT_CONDITION.sub(lambda found: b" " * len(found.group()), text)


def _blanked(found: re.Match[bytes]) -> bytes:
    line_start = found.string.rfind(b"\n", 0, found.start()) + 1
    if found.string[line_start : found.start()].lstrip()[:1] == b"#":
        # The macro is being defined or tested here.
        return found.group()
    whole, start = found.group(), found.start(1) - found.start()
    end = start + len(found.group(1))
    return whole[:start] + re.sub(rb"[^\n]", b" ", whole[start:end]) + whole[end:]
