"""Checks a repository's Dockerfile and writes it out again, so that the engine builds exactly what was checked. Pure.

The file is untrusted. The engine itself would fetch `ADD https://…` with the host's network, and pull any image that FROM
or COPY --from names. Everything else runs in a container. The engine gets one instruction per line, without comments and
parser directives: there is nothing left that two parsers could read differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from codehub.domain.errors import Invalid
from codehub.domain.images import parse_image

_LONGEST = 256 << 10
_MOST_STAGES = 50
_MOST_BASES = 50  # each is pulled, one after the other
# Of an argument before FROM. Arguments that name others several times would double in length with each line.
_LONGEST_ARGUMENT = 4096
_INSTRUCTION = re.compile(r"([A-Za-z]+)(?:[ \t]+(.*))?")
# Blanks around the value are cut off afterwards: as part of the pattern they would take quadratic time.
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z]+)[ \t]*=(.*)")
# With what Python, but not the engine, takes for the end of a line.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_BLANKS = re.compile(r"[ \t]+")
# The engine removes quotes and backslashes from flags and ends them at more than blanks: only plain ones are allowed.
_FLAG = re.compile(r"--[a-z-]+=[!#-&(-\[\]-~]+")
# A shell's, and what BuildKit's parser takes for one: it ends words at any white space.
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?(?:\s*['\"]?[A-Za-z_]|[^<\s])")
_FROM = re.compile(r"(?:--platform=(\S+)[ \t]+)?(\S+)(?:[ \t]+[Aa][Ss][ \t]+([A-Za-z0-9][A-Za-z0-9_.-]{0,127}))?")
_COPY_FROM = "--from="
_ARG = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.S)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}$]*))?\})")
# Without a colon no source is an address, whatever quotes, escapes or variables would make of it.
_ADDED = re.compile(r"[A-Za-z0-9._/*?@+~, -]+")
_PLATFORM = re.compile(r"[a-z0-9]+(?:/[a-z0-9]+){1,2}")
_THIS_MACHINE = frozenset({"$BUILDPLATFORM", "${BUILDPLATFORM}", "$TARGETPLATFORM", "${TARGETPLATFORM}"})
_KNOWN = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "RUN",
     "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)  # fmt: skip
# The name of a last stage that has none, for what is built on top of it.
LAST_STAGE = "codehub_last"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A checked Dockerfile: one instruction per line, and the images that it is built from."""

    text: str
    bases: tuple[str, ...]
    last_stage: str


def check_dockerfile(text: str, args: Mapping[str, str], target: str = "") -> Recipe:
    """Return what the engine may build. Raises Invalid with the line that is not allowed."""
    stages = _Stages(args, target)
    for number, line in _logical_lines(text):
        try:
            stages.add(line)
        except Invalid as error:
            raise Invalid(f"line {number}: {error}") from None
    return stages.recipe()


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines and leave out comments. A line ends where the engine ends it."""
    if len(text) > _LONGEST:
        raise Invalid(f"it is larger than {_LONGEST >> 10} KiB")
    found: list[tuple[int, str]] = []
    pieces: list[str] = []
    start, at_top = 0, True
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if _CONTROL.search(raw):
            raise Invalid(f"line {number}: it holds a control character or a line separator")
        line = raw.strip(" \t")
        if at_top and (directive := _DIRECTIVE.fullmatch(line)):
            if directive[1].lower() == "escape" and directive[2].strip(" \t") != "\\":
                raise Invalid(f"line {number}: the escape character must be a backslash")
            continue
        at_top = False
        if not line or line.startswith("#"):
            continue
        start = start if pieces else number
        piece = raw.rstrip(" \t")
        if piece.endswith("\\"):
            pieces.append(piece[:-1])
            continue
        found.append((start, "".join([*pieces, piece]).strip(" \t")))
        pieces = []
    if pieces:
        raise Invalid(f"line {start}: it goes on after the end of the file")
    return found


class _Stages:
    def __init__(self, args: Mapping[str, str], target: str) -> None:
        self._given = args
        self._target = target.lower()
        self._globals: dict[str, str] = {}
        self._names: list[str] = []  # of stages, in lower case; those without a name are empty
        self._bases: dict[str, None] = {}
        self._lines: list[str] = []
        self._from_line = 0  # of the last stage
        self._complete = False  # the target's stage has ended: what follows is not built

    def add(self, line: str) -> None:
        found = _INSTRUCTION.fullmatch(line)
        name, rest = (found[1].upper(), found[2] or "") if found else ("", "")
        if name not in _KNOWN:
            raise Invalid("ONBUILD is not allowed" if name == "ONBUILD" else f"{line[:40]!r} is not known")
        if not rest:
            raise Invalid(f"{name} has no argument")
        if rest.endswith("\\"):
            raise Invalid("it ends with a backslash")
        if not self._names and name not in ("ARG", "FROM"):
            raise Invalid("only ARG may stand before FROM")
        if name == "FROM":
            self._from(rest)
        elif not self._complete:
            self._check(name, rest)
            self._lines.append(f"{name} {self._copy(rest) if name == 'COPY' else rest}")

    def _from(self, rest: str) -> None:
        self._complete = self._complete or bool(self._names and self._target and self._names[-1] == self._target)
        if self._complete:
            return
        found = _FROM.fullmatch(rest)
        if found is None or len(self._names) >= _MOST_STAGES:
            raise Invalid("FROM has the form FROM image [AS name]" if found is None else "it has too many stages")
        platform, image, name = found[1] or "", self._image(found[2]), (found[3] or "").lower()
        if platform and platform not in _THIS_MACHINE and not _PLATFORM.fullmatch(platform):
            raise Invalid("the platform must be written out")
        if image != "scratch" and image.lower() not in self._names:
            image = self._base(image)
        flag = f"--platform={platform} " if platform and platform not in _THIS_MACHINE else ""
        self._names.append(name)
        self._from_line = len(self._lines)
        self._lines.append(f"FROM {flag}{image}" + (f" AS {name}" if name else ""))

    def _check(self, name: str, rest: str) -> None:
        if name in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest):
            raise Invalid("here-documents need BuildKit, which is not used here")
        if name == "RUN" and rest.startswith("--"):
            raise Invalid(f"{rest.split()[0].partition('=')[0]} needs BuildKit, which is not used here")
        if name == "ARG" and not self._names:
            self._argument(rest)
        if name == "ADD":
            _check_added(rest)

    def _argument(self, rest: str) -> None:
        found = _ARG.fullmatch(rest)
        if found is None:
            raise Invalid("ARG has the form ARG name[=value]")
        default = found[2] or ""
        if len(default) > 1 and default[0] == default[-1] and default[0] in "'\"":
            default = default[1:-1]
        self._globals[found[1]] = _short(self._given.get(found[1], self._filled(default)))

    def _copy(self, rest: str) -> str:
        flags, left = _flags(rest)
        for place, flag in enumerate(flags):
            if flag.startswith(_COPY_FROM):
                flags[place] = _COPY_FROM + self._source(flag.removeprefix(_COPY_FROM))
        return " ".join([*flags, left])

    def _source(self, name: str) -> str:
        if "$" in name:
            raise Invalid("COPY --from names a stage or an image, without variables")
        # The stage of this line is not complete: within it, the engine takes its name for an image.
        complete = self._names[:-1]
        is_stage = name.lower() in complete or name in map(str, range(len(complete)))
        return name if is_stage else self._base(name)

    def _base(self, text: str) -> str:
        """Return the image as it is checked and as the engine gets it, which takes some shorter texts for an id."""
        image = str(parse_image(text))
        self._bases[image] = None
        return image

    def _filled(self, text: str) -> str:
        def one(found: re.Match[str]) -> str:
            return self._globals.get(found[1] or found[2]) or found[3] or ""

        return _short(_VARIABLE.sub(one, _short(text)))

    def _image(self, text: str) -> str:
        """Return the image that FROM names. The engine gets it without variables."""
        image = self._filled(text)
        if not image or image[0] == "-" or any(char in image for char in "$\\\"' \t") or _CONTROL.search(image):
            raise Invalid(f"{text!r} is not the name of an image")
        return image

    def recipe(self) -> Recipe:
        if not self._names:
            raise Invalid("it has no FROM")
        if len(self._bases) > _MOST_BASES:
            raise Invalid(f"it is built from more than {_MOST_BASES} images")
        if self._target and self._target not in self._names:
            raise Invalid(f"there is no stage {self._target!r}")
        last = self._names[-1]
        if not last:
            last = LAST_STAGE
            self._lines[self._from_line] += f" AS {last}"
        return Recipe("\n".join(self._lines) + "\n", tuple(self._bases), last)


def _short(text: str) -> str:
    if len(text) > _LONGEST_ARGUMENT:
        raise Invalid(f"an argument or image has more than {_LONGEST_ARGUMENT} characters")
    return text


def _flags(rest: str) -> tuple[list[str], str]:
    """Return the flags of COPY or ADD, and what follows. Raises Invalid if the engine could read one differently."""
    flags: list[str] = []
    while rest.startswith("--"):
        flag, *more = _BLANKS.split(rest, maxsplit=1)
        if not _FLAG.fullmatch(flag):
            raise Invalid("flags have the form --name=value, without quotes and backslashes")
        flags.append(flag)
        rest = more[0] if more else ""
    return flags, rest


def _check_added(rest: str) -> None:
    sources = _words(_flags(rest)[1])[:-1]
    if not sources or not all(_ADDED.fullmatch(source) for source in sources):
        raise Invalid("ADD takes files of the repository only; fetch others with RUN")


def _words(rest: str) -> list[str]:
    """Return the words of ADD. The JSON form is what the engine takes for one: everything else is split at blanks."""
    if not rest.startswith("["):
        return rest.split()
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Invalid("ADD holds a list that cannot be read")
    return words


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """Return a checked Dockerfile in which every stage has these labels, whatever labels it sets itself."""
    instruction = "LABEL " + " ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    lines: list[str] = []
    # Split as the check did: `splitlines` knows ends of lines that neither the check nor the engine knows.
    for line in text.removesuffix("\n").split("\n"):
        lines += [line, instruction] if line.startswith(("FROM ", "LABEL ")) else [line]
    return "\n".join(lines) + "\n"
