"""Blanks C and C++ macros that hide a definition from a parser that does not expand them. Pure.

To a grammar that does not know macros, `class LEVELDB_EXPORT Status {` looks like a function named Status. The
replacement is as long as the macro, so that all positions in the text stay the same.
"""

from __future__ import annotations

import re

_MACRO = rb"[A-Z][A-Z0-9]*_[A-Z0-9_]*|[A-Z][A-Z0-9]{2,}"
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
# `BEGIN_NAMESPACE` alone on a line, not indented: an enumerator would be indented.
_ALONE = re.compile(rb"^(" + _MACRO + rb")[ \t]*\r?$", re.MULTILINE)


def without_macros(text: bytes) -> bytes:
    """Return the text with such macros blanked."""
    for pattern in (_BEFORE_CLASS_NAME, _BEFORE_TYPE, _ALONE):
        text = pattern.sub(_blanked, text)
    return text


def _blanked(found: re.Match[bytes]) -> bytes:
    line_start = found.string.rfind(b"\n", 0, found.start()) + 1
    if found.string[line_start : found.start()].lstrip()[:1] == b"#":
        # The macro is being defined or tested here.
        return found.group()
    whole, start = found.group(), found.start(1) - found.start()
    end = start + len(found.group(1))
    return whole[:start] + re.sub(rb"[^\n]", b" ", whole[start:end]) + whole[end:]
