"""Glob patterns with the semantics of ripgrep and git, matched in time linear in the path. Pure.

A pattern becomes one regular expression. Each `*` and each `**` is followed by something of fixed width up to the next
one, so the leftmost match of that is as good as any other: an atomic group takes it and is never re-entered. Without
these groups, `*a*a*a*b` would try every distribution of its stars over a long name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

# `{a,b}{a,b}…` doubles with every pair of braces.
_MOST_ALTERNATIVES = 1_000
_LONGEST_GLOB = 4_096
_META = re.compile(r"[*?\[\]{}\\]")


class InvalidGlob(ValueError):
    """Raised when a pattern is invalid. The message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file, or one glob of a query."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@lru_cache(maxsize=4096)
def compile_pattern(line: str) -> Pattern | None:
    """Parse one line by git's rules; None for blank lines and comments. Raises `InvalidGlob`."""
    text = line.rstrip("\n").rstrip("\r")
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text.rstrip(" ")
    if not text or text.startswith("#"):
        return None
    if len(text) > _LONGEST_GLOB:
        raise InvalidGlob(f"the glob is longer than {_LONGEST_GLOB} characters")
    negated = text.startswith("!")
    text = text[1:] if negated else text
    if text.startswith("\\") and text[1:2] in ("!", "#"):
        text = text[1:]
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    text = text.removeprefix("/")
    if not anchored and not text.startswith("**/"):
        text = "**/" + text
    regex = "|".join(_path_regex(one) for one in _expand(text))
    try:
        return Pattern(re.compile(regex, re.DOTALL), negated, folders_only)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidGlob(f"error parsing glob {line.strip()!r}: {error}") from error


def _expand(glob: str) -> list[str]:
    """Return patterns without braces, one for each combination of alternatives."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        text = waiting.pop()
        parts = _first_braces(text)
        if parts is None:
            done.append(text)
        else:
            before, choices, after = parts
            waiting += [before + choice + after for choice in choices]
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
            raise InvalidGlob(f"error parsing glob {glob!r}: more than {_MOST_ALTERNATIVES} alternatives")
    return done


def _first_braces(text: str) -> tuple[str, list[str], str] | None:
    opened, depth, starts = -1, 0, [0]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = _class_end(text, at)
        elif char == "{":
            if not depth:
                opened, starts = at, [at + 1]
            depth += 1
        elif char == "," and depth == 1:
            starts.append(at + 1)
        elif char == "}":
            if not depth:
                raise InvalidGlob(f"error parsing glob {text!r}: unopened alternate group; missing '{{'")
            depth -= 1
            if not depth:
                ends = [*(start - 1 for start in starts[1:]), at]
                choices = [text[start:end] for start, end in zip(starts, ends, strict=True)]
                return text[:opened], choices, text[at + 1 :]
        at += 1
    if depth:
        raise InvalidGlob(f"error parsing glob {text!r}: unclosed alternate group; missing '}}'")
    if at > len(text):
        raise InvalidGlob(f"error parsing glob {text!r}: dangling '\\'")
    return None


def _class_end(text: str, at: int) -> int:
    """Return the position of the `]` that ends the character class that begins here."""
    first = at + 2 if text[at + 1 : at + 2] in ("!", "^") else at + 1
    close = text.find("]", first + 1)
    if close < 0:
        raise InvalidGlob(f"error parsing glob {text!r}: unclosed character class; missing ']'")
    return close


def _path_regex(glob: str) -> str:
    """Return the regular expression for a pattern without braces."""
    # Groups of segments between `**`s; an empty first or last group is a leading or trailing `**`.
    groups: list[list[str]] = [[]]
    for segment in _segments(glob):
        if segment == "**":
            if groups[-1] or len(groups) == 1:
                groups.append([])
        else:
            groups[-1].append(_segment_regex(segment))
    first, *rest = ("/".join(group) for group in groups)
    if not rest:
        return first
    *middle, last = rest
    out = first + "/" if first else ""
    out += "".join(f"(?>(?:[^/]*/)*?{group}/)" for group in middle)
    if last:
        return out + "(?:[^/]*/)*" + last
    # A trailing `**` matches everything below a folder; alone it matches everything.
    return out + ".+" if out else ".*"


def _segments(glob: str) -> Iterator[str]:
    at = start = 0
    while at < len(glob):
        char = glob[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = _class_end(glob, at)
        elif char == "/":
            yield glob[start:at]
            start = at + 1
        at += 1
    yield glob[start:]


def _segment_regex(segment: str) -> str:
    chunks = [""]
    at = 0
    while at < len(segment):
        char = segment[at]
        if char == "*":
            while segment[at + 1 : at + 2] == "*":
                at += 1
            chunks.append("")
        elif char == "?":
            chunks[-1] += "[^/]"
        elif char == "[":
            close = _class_end(segment, at)
            chunks[-1] += _class_regex(segment[at + 1 : close])
            at = close
        elif char == "\\":
            at += 1
            chunks[-1] += re.escape(segment[at])
        else:
            chunks[-1] += re.escape(char)
        at += 1
    first, *rest = chunks
    if not rest:
        return first
    *middle, last = rest
    stars = "".join(f"(?>[^/]*?{chunk})" for chunk in middle)
    return f"(?>{first}{stars}[^/]*{last}(?=/|\\Z))"


def _class_regex(inner: str) -> str:
    negate = inner[:1] in ("!", "^")
    body = inner[1:] if negate else inner
    escaped = body.replace("\\", "\\\\")
    for char in "[]^&|~":
        escaped = escaped.replace(char, "\\" + char)
    return f"(?!/)[{'^' if negate else ''}{escaped}]"


def last_match(patterns: Sequence[Pattern], path: str, is_folder: bool) -> Pattern | None:
    """Return the pattern that decides: the last one that matches."""
    for pattern in reversed(patterns):
        if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
            return pattern
    return None


class Globs:
    """The globs of a query. As with ripgrep's `-g`, the last match decides, and `!` excludes a path with everything
    below.

    With `folders`, a plain path such as `src/forms` also selects everything below the folder of that name.
    """

    def __init__(self, globs: Iterable[str], *, folders: bool = False) -> None:
        spelled = [text for glob in globs for text in (_with_folders(glob) if folders else [glob])]
        compiled = [compile_pattern(text) for text in spelled]
        self._patterns = tuple(pattern for pattern in compiled if pattern is not None)
        self._selective = any(not pattern.negated for pattern in self._patterns)
        self._excluded: dict[str, bool] = {"": False}

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def takes(self, path: str) -> bool:
        """Whether the globs select this file."""
        if self._is_excluded(path.rpartition("/")[0]):
            return False
        decided = last_match(self._patterns, path, is_folder=False)
        return not self._selective if decided is None else not decided.negated

    def _is_excluded(self, folder: str) -> bool:
        known = self._excluded.get(folder)
        if known is None:
            decided = last_match(self._patterns, folder, is_folder=True)
            known = self._is_excluded(folder.rpartition("/")[0]) or (decided is not None and decided.negated)
            self._excluded[folder] = known
        return known


def _with_folders(glob: str) -> list[str]:
    """Expand a plain path: `./src`, `src/` and `src` match everything below; `src` may also be a file."""
    if glob.startswith("!"):
        return ["!" + glob[1:].removeprefix("./")]
    anchored = glob.startswith(("./", "/"))
    body = glob.removeprefix("./")
    name = body.strip("/")
    if not name:
        return [body]
    lead = "/" if anchored else ""
    below = f"{lead}{name}/**" if "/" in name or anchored else f"**/{name}/**"
    if body.endswith("/"):
        return [below]
    return [lead + name] if _META.search(name) else [lead + name, below]
