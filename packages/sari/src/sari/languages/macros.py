"""Blanks C and C++ macros, Swift conditions and Kotlin annotations that hide a definition from the parser. Pure.

To a grammar that does not know macros, `class LEVELDB_EXPORT Status {` looks like a function named Status. The
replacement is as long as the macro, so that all positions in the text stay the same.
"""

from __future__ import annotations

import re
from itertools import pairwise

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
    rb"|template|extern|unsigned|signed|virtual|explicit|friend|typename|using|enum|double|float|long|short|size_t|typedef|operator"
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
# `void Lock() EXCLUSIVE_LOCK_FUNCTION() {`: nothing else with such a name is between parameters and a body.
_BEFORE_BODY = re.compile(
    rb"\)[ \t]*(?:const\b[ \t]*)?\s?[ \t]*\b((?:" + _MACRO + rb")" + _ARGUMENTS + rb")(?=[ \t\n]*\{)"
)
# `int (*callback)(void) API_ATTR;`, `int size GUARDED_BY(mutex);`
_BEFORE_SEMICOLON = re.compile(
    rb"(?:[)\]][ \t]+("
    + _MACRO
    + rb")|[\w)\]]\s{1,20}([A-Z_]*(?:GUARDED_BY|LOCKS?_|_REQUIRED|_ATTR)[A-Z_]*"
    + _ARGUMENTS
    + rb"))"
    rb"(?=[ \t]*;)"
)
# `typedef int (WINAPI *function)(int);`
_CALLING_CONVENTION = re.compile(rb"\(((?:" + _MACRO + rb"))(?=[ \t]*\*[ \t]*\w+[ \t]*\)\s*\()")
# `API_CONSTEXPR name(int x) : x_(x) {}`: no type has such a name.
_SPECIFIER = re.compile(
    rb"(?<![\w.>#])([A-Z0-9_]*(?:CONSTEXPR|INLINE|EXPORT|NODISCARD|DEPRECATED|NORETURN|EXPLICIT)[A-Z0-9_]*\b"
    + _ARGUMENTS
    + rb")(?=\s+[A-Za-z_~:\[])"
)
# `WARNINGS_PUSH_(4251)` alone on a line, followed neither by a body nor by the rest of an expression.
_CALL_ALONE = re.compile(
    rb"(?<!\\\n)^[ \t]*((?:"
    + _MACRO
    + rb")\((?:[^()\n]|\\\n){0,200}\))[ \t]*(?://[^\n]*)?\r?\n(?!\s*[{:=,;)+\-*/&|.?<>(])",
    re.MULTILINE,
)
# `PRIVATE_FIELDS` alone on the last line of a struct: an enumerator there would follow a comma.
_LAST_FIELDS = re.compile(rb";[ \t]*(?:/\*[^*\n]*\*/)?\s{1,80}((?:" + _MACRO + rb"))[ \t]*\r?\n(?=[ \t]*\})")
# `BEGIN_NAMESPACE` alone on a line, not indented: an enumerator would be indented.
_ALONE = re.compile(rb"^(" + _MACRO + rb")[ \t]*\r?$", re.MULTILINE)
# `NODISCARD` alone on a line before the declaration that it belongs to: an enumerator is followed by `,` or `}`.
_ALONE_BEFORE = re.compile(rb"^[ \t]+(" + _MACRO + rb")[ \t]*\r?\n(?=[ \t]*[A-Za-z_~])", re.MULTILINE)
# `struct handle { HANDLE_FIELDS };`
_FIELDS = re.compile(
    rb"\b(?:struct|union|class)[ \t]+\w+\s*\{\s*((?:" + _MACRO + rb")(?:\s+(?:" + _MACRO + rb"))*)(?=\s*\})"
)
_PATTERNS = (
    _SPECIFIER,
    _BEFORE_CLASS_NAME,
    _AFTER_NAMESPACE,
    _AFTER_PARAMETERS,
    _BEFORE_BODY,
    _BEFORE_SEMICOLON,
    _CALLING_CONVENTION,
    _FIELDS,
    _LAST_FIELDS,
    _CALL_ALONE,
    _ALONE_BEFORE,
    _BEFORE_TYPE,
    _BEFORE_FUNCTION,
    _ALONE,
)


# A macro of several lines. The grammar ends it at a comment.
_LONG_DEFINITION = re.compile(rb"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\r?\n)+[^\n]*", re.MULTILINE)
_COMMENT = re.compile(rb"/\*[^\n]{0,500}?\*/")


def without_macros(text: bytes) -> bytes:
    """Return the text with such macros blanked."""
    text = _LONG_DEFINITION.sub(
        lambda found: _COMMENT.sub(lambda comment: b" " * len(comment.group()), found.group()), text
    )
    for pattern in _PATTERNS:
        text = pattern.sub(_blanked, text)
    return text


_DIRECTIVE = re.compile(rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*(0\b)?")


def first_branches(text: bytes) -> bytes:
    """Return C or C++ text with only the first branch of each `#if`, or the second of `#if 0`.

    Branches that each begin a definition, and share its end, cannot be parsed together.
    """
    lines = text.split(b"\n")
    # For each open condition: whether its current branch is kept, and whether any was.
    conditions: list[tuple[bool, bool]] = []
    # How many of them drop their current branch.
    dropped = 0
    is_continued = is_directive = False
    for number, line in enumerate(lines):
        found = None if is_continued else _DIRECTIVE.match(line)
        is_directive = found is not None or (is_continued and is_directive)
        is_continued = line.rstrip(b"\r").endswith(b"\\")
        if found is not None:
            if found[1] in (b"if", b"ifdef", b"ifndef"):
                conditions.append((found[2] is None, found[2] is None))
            elif conditions:
                was_kept, had_branch = conditions.pop()
                dropped -= not was_kept
                if found[1] != b"endif":
                    conditions.append((not had_branch, True))
            if conditions and found[1] != b"endif":
                dropped += not conditions[-1][0]
        if is_directive or dropped:
            lines[number] = b" " * len(line)
    return b"\n".join(lines)


_NAMESPACE = re.compile(rb"^namespace\b[^;\n]*\{", re.MULTILINE)


def by_namespace(text: bytes, most_bytes: int) -> list[bytes]:
    """Return the text once for each namespace that begins a line, with everything outside of it blanked.

    An error in one namespace of a very long file can make the parser give up on all of them. Returns nothing if the
    texts together would be longer than `most_bytes`.
    """
    starts = [found.start() for found in _NAMESPACE.finditer(text)]
    if len(starts) * len(text) > most_bytes:
        return []
    return [
        b"".join((_blank(text[:start]), text[start:end], _blank(text[end:])))
        for start, end in pairwise([*starts, len(text)])
    ]


def _blank(text: bytes) -> bytes:
    return re.sub(rb"[^\n]+", lambda line: b" " * len(line.group()), text)


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
    group = found.lastindex or 0
    whole, start = found.group(), found.start(group) - found.start()
    end = start + len(found.group(group))
    return whole[:start] + re.sub(rb"[^\n]", b" ", whole[start:end]) + whole[end:]


# The grammar takes `@Service` on a line of its own and `open class Name {` after it for one expression.
_BEFORE_KOTLIN_CLASS = re.compile(
    rb"^[ \t]*((?:@[\w.:]+(?:\((?:[^()]|\([^()]*\))*\))?\s+){1,20})"
    rb"(?=(?:(?:public|private|internal|protected|open|abstract|sealed|data|annotation|inner|expect|actual|enum|value|fun)\s+)*"
    rb"(?:class|interface|object)\b)",
    re.MULTILINE,
)


def without_annotations(text: bytes) -> bytes:
    """Blank the annotations of Kotlin classes."""
    return _BEFORE_KOTLIN_CLASS.sub(_blanked, text)
