"""Dockerfiles of a repository: what is built, what is refused, and that only what was checked reaches the engine."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.dockerfile import check_dockerfile, with_labels
from codehub.domain.errors import Invalid

_USUAL = """# syntax=docker/dockerfile:1
# escape=\\

ARG VARIANT=3.12
ARG BASE="python:${VARIANT}"
FROM ${BASE} AS build
RUN apt-get update \\
    # a comment in between

    && apt-get install -y git
COPY . /src
ADD vendor.tar.gz /opt
FROM --platform=$BUILDPLATFORM debian:12
COPY --from=build --chown=1000:1000 /src /src
copy --from=0 /a /b
COPY --from=tools:1 /bin/x /bin/x
ENV A=1 B="two words"
"""


def test_a_dockerfile_is_written_out_again_with_one_instruction_per_line() -> None:
    found = check_dockerfile(_USUAL, {"VARIANT": "3.13"})
    assert found.text.splitlines() == [
        "ARG VARIANT=3.12",
        'ARG BASE="python:${VARIANT}"',
        "FROM python:3.13 AS build",
        "RUN apt-get update     && apt-get install -y git",
        "COPY . /src",
        "ADD vendor.tar.gz /opt",
        "FROM debian:12 AS codehub_last",
        "COPY --from=build --chown=1000:1000 /src /src",
        "COPY --from=0 /a /b",
        "COPY --from=tools:1 /bin/x /bin/x",
        'ENV A=1 B="two words"',
    ]
    assert found.bases == ("python:3.13", "debian:12", "tools:1")
    assert found.last_stage == "codehub_last"


def test_arguments_fill_in_the_image_and_may_be_empty_or_several_words() -> None:
    text = "ARG A\nARG B='two words'\nARG C=$A-x\nFROM base:${A:-1}${D}\nARG B\n"
    assert check_dockerfile(text, {}).bases == ("base:1",)
    assert check_dockerfile(text, {"A": "9"}).bases == ("base:9",)
    with pytest.raises(Invalid, match="not the name"):
        check_dockerfile(text, {"A": "9 AS x"})


def test_what_comes_after_the_target_is_not_built() -> None:
    found = check_dockerfile("FROM a AS dev\nRUN x\nFROM evil AS other\nRUN y\n", {}, "Dev")
    assert found.text == "FROM a:latest AS dev\nRUN x\n"
    assert (found.bases, found.last_stage) == (("a:latest",), "dev")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ADD https://example.org/x /x", "ADD takes files"),
        ("ADD http:\\//169.254.169.254/x /x", "ADD takes files"),
        ('ADD "http"://a /x', "ADD takes files"),
        ("ADD --chown=1 $URL /x", "ADD takes files"),
        ("ADD ${U}://a /x", "ADD takes files"),
        ('ADD ["http://a", "/x"]', "ADD takes files"),
        ('ADD ["h\\u0074tp://a", "/x"]', "ADD takes files"),
        ("ADD git@github.com:a/b /x", "ADD takes files"),
        ("AD\\\nD http://a /x", "ADD takes files"),
        ("ADD --chown=1\thttp://169.254.169.254/x a /x/", "ADD takes files"),
        ("ADD --chown=1\u00a0http://169.254.169.254/x a /x/", "flags have the form"),
        ("ADD -- http://a /x", "flags have the form"),
        ("ADD a", "ADD takes files"),
        ("ADD [1]", "cannot be read"),
        ("ADD [" * 3, "cannot be read"),
        ("ONBUILD ADD http://a /x", "ONBUILD"),
        ("RUN --mount=type=bind,from=evil,target=/x true", "BuildKit"),
        ("RUN --network=host true", "BuildKit"),
        ("RUN --security=insecure true", "BuildKit"),
        ("RUN <<EOF\nx\nEOF", "BuildKit"),
        ("RUN cat <<1\nx\n1", "BuildKit"),
        ("RUN cat\u00a0<<E\nx\nE", "BuildKit"),
        ("COPY 3<<-. /x\n.", "BuildKit"),
        ("COPY --from=$X /a /b", "without variables"),
        ("COPY --fr\\om=evil /a /b", "flags have the form"),
        ('COPY --"from"=evil /a /b', "flags have the form"),
        ("COPY --'fr'om=evil /a /b", "flags have the form"),
        ("COPY --chown=1 --fro\\m=evil /a /b", "flags have the form"),
        ("COPY --from evil /a /b", "flags have the form"),
        ("COPY --from= /a /b", "flags have the form"),
        ("COPY --from=\u00b2 /a /b", "flags have the form"),
        ("FROM $UNKNOWN", "not the name of an image"),
        ('FROM "a"', "not the name of an image"),
        ("FROM --platform=a", "not the name of an image"),
        ("FROM a b c", "FROM has the form"),
        ("FROM --platform=$X a", "platform"),
        ("INCLUDE evil", "is not known"),
        ("RUN", "has no argument"),
        ("RUN a\\", "goes on after the end"),
        ("RUN a\x00b", "control character"),
        ("RUN a\x0bADD http://x /y", "control character"),
        ("RUN a\x85ADD http://x /y", "control character"),
        ("RUN a\u2028ADD http://x /y", "line separator"),
        ("RUN a\u2029FROM evil", "line separator"),
    ],
)
def test_what_the_host_would_do_for_a_repository_is_refused(line: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        check_dockerfile(f"FROM a\n{line}\n", {})
    assert str(caught.value).startswith("line 2: ")


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        ("", "", "it has no FROM"),
        ("RUN x\nFROM a\n", "", "only ARG may stand before FROM"),
        ("# escape=`\nFROM a", "", "must be a backslash"),
        ("FROM a\n" * 51, "", "too many stages"),
        ("ARG X=\nFROM a AS b\nFROM c\n", "none", "there is no stage 'none'"),
        ("FROM " + "a" * 5000, "", "more than 4096 characters"),
        ("FROM " + "a" * (300 << 10), "", "larger than 256 KiB"),
    ],
)
def test_other_files_are_refused(text: str, target: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check_dockerfile(text, {}, target)


def test_fifty_stages_and_a_target_among_them_are_built() -> None:
    assert check_dockerfile("FROM a\n" * 49 + "FROM b AS dev\n", {}, "dev").bases == (
        "a:latest",
        "b:latest",
    )


def test_a_stage_that_is_not_complete_yet_is_an_image() -> None:
    """The engine knows a stage once it has ended: within it, the same name means an image."""
    assert check_dockerfile("FROM a AS evil\nCOPY --from=evil /x /y\n", {}).bases == ("a:latest", "evil:latest")
    assert check_dockerfile("FROM a AS x\nCOPY --from=0 /x /y\n", {}).bases == ("a:latest", "0:latest")
    text = "FROM a AS x\nFROM b\nCOPY --from=X /x /y\nCOPY --from=0 /x /y\n"
    assert check_dockerfile(text, {}).bases == ("a:latest", "b:latest")


def test_the_engine_gets_the_name_that_was_checked_and_never_an_id() -> None:
    """Of `abcdef123456` it would take the image with this id, of whomever that is, before it pulled one of that name."""
    found = check_dockerfile("FROM abcdef123456\nCOPY --from=abcdef --chown=1 /x /y\nFROM scratch\n", {})
    assert found.bases == ("abcdef123456:latest", "abcdef:latest")
    assert found.text.splitlines()[:2] == ["FROM abcdef123456:latest", "COPY --from=abcdef:latest --chown=1 /x /y"]
    for name in ("sha256:" + "a" * 64, "sha256:abcdef", "a" * 64, "SCRATCH"):
        for line in (f"FROM {name}", f"FROM a\nCOPY --from={name} /x /y"):
            with pytest.raises(Invalid, match="is not an image reference"):
                check_dockerfile(line + "\n", {})


def test_flags_without_quotes_are_kept() -> None:
    text = "FROM a\nCOPY --chown=${USER}:1000 \t--from=tools:1 --chmod=0755 /a b:c /d\nADD --chown=$USER a.tar /x:y\n"
    found = check_dockerfile(text, {})
    assert found.text.splitlines()[1:] == text.replace(" \t", " ").splitlines()[1:]
    assert found.bases == ("a:latest", "tools:1")


def test_labels_are_added_to_each_stage_and_to_nothing_that_only_looks_like_one() -> None:
    """A line separator once became the end of a line after the check, so that a RUN hid any other instruction."""
    text = "FROM a AS x\nRUN echo \u2028FROM evil\x85ADD http://a /x\nFROM b\n"
    assert with_labels(text, {"l": 'v"'}) == (
        'FROM a AS x\nLABEL l="v\\""\nRUN echo \u2028FROM evil\x85ADD http://a /x\nFROM b\nLABEL l="v\\""\n'
    )


# Words that a Dockerfile is written with, and what parsers may disagree about.
_WORDS = st.sampled_from(
    ["ADD", "COPY", "FROM", "RUN", "a", "/x", "http://a", "evil", "$X", "--from=", "--fr", "om=evil", "--chown=1", "AS b",
     "<<E", "[", "]", '"', "'", "#", "\\", "\\\n", "\u00a0", "\u2028", "\x85", "\x0b"]
)  # fmt: skip
_LINES = st.builds(
    lambda name, words: name + " " + "".join(words),
    st.sampled_from(["ADD", "COPY", "FROM", "RUN"]),
    st.lists(st.one_of(st.sampled_from([" ", "\t"]), _WORDS), max_size=8),
)


def _read_by_engine(line: str) -> tuple[str, list[str], list[str]]:
    """The name, flags and words of a line, read as the engine's parser does: byte by byte, without quotes in flags."""
    name, _, rest = line.partition(" ")
    flags: list[str] = []
    raw = rest.strip().encode().decode("latin-1")
    while raw.startswith("--"):
        word, at, quote = "", 0, ""
        while at < len(raw) and (quote or not raw[at].isspace()):
            if raw[at] == "\\" and at + 1 < len(raw):
                at += 1
                word += raw[at]
            elif raw[at] in "'\"" and quote in ("", raw[at]):
                quote = "" if quote else raw[at]
            else:
                word += raw[at]
            at += 1
        raw = raw[at:].lstrip()
        flags.append(word)
    words = json.loads(raw) if raw.startswith("[") and name == "ADD" else raw.split()
    return name, flags, words


@given(st.lists(_LINES, min_size=1, max_size=3), st.sampled_from(["", "dev"]))
def test_no_accepted_file_makes_the_engine_fetch_anything_but_its_bases(lines: list[str], target: str) -> None:
    try:
        found = check_dockerfile("FROM base AS dev\n" + "\n".join(lines), {"X": "http://a"}, target)
    except Invalid:
        return
    known, stage = set(found.bases), set[str]()
    for line in with_labels(found.text, {"l": "v"}).split("\n")[:-1]:
        assert not line.startswith("#")
        assert not line.endswith("\\")
        assert len(line.splitlines()) == 1
        name, flags, words = _read_by_engine(line)
        if name == "ADD":
            assert not [source for source in words[:-1] if ":" in source]
        if name == "COPY":
            assert {flag.removeprefix("--from=") for flag in flags if flag.startswith("--from=")} <= known
        if name == "FROM":
            known, stage = known | stage, set(words[2:])  # a stage is known by its name once it has ended
            assert words[0] in known
    # Checked again, it is the same: nothing in it reads differently a second time.
    assert check_dockerfile(found.text, {"X": "http://a"}, target).text == found.text


def test_a_dockerfile_of_256_kibibytes_is_read_and_a_larger_one_is_refused() -> None:
    text = "FROM debian:12\n"
    assert check_dockerfile(text.ljust(256 << 10), {}).bases == ("debian:12",)
    with pytest.raises(Invalid, match="256 KiB"):
        check_dockerfile(text.ljust((256 << 10) + 1), {})


@pytest.mark.parametrize(
    "text",
    [
        # Each argument is ten times as long as the one before.
        "".join(f"ARG a{n + 1}={f'$a{n}' * 10}\n" for n in range(6)).replace("$a0", "xxxxxxxxxx") + "FROM ${a6}\n",
        "ARG a=" + "x" * 4000 + "\nFROM " + "$a" * 2000 + "\n",
        "ARG given\nFROM debian:12\n",
        "FROM debian:12\n" + "".join(f"COPY --from=i:{n} /a /b\n" for n in range(60)),
    ],
    ids=["nested", "repeated", "given", "images"],
)
def test_a_file_of_some_lines_takes_neither_gigabytes_nor_thousands_of_images(text: str) -> None:
    with pytest.raises(Invalid, match=r"more than (4096 characters|50 images)"):
        check_dockerfile(text, {"given": "x" * 5000})


def test_a_stage_that_is_no_number_of_ours_is_an_image() -> None:
    name = "7" * 500
    assert check_dockerfile(f"FROM debian:12\nCOPY --from={name} /a /b\n", {}).bases == (
        "debian:12",
        f"{name}:latest",
    )
    with pytest.raises(Invalid, match="at most 512"):
        check_dockerfile(f"FROM debian:12\nCOPY --from={'7' * 5000} /a /b\n", {})


def test_a_directive_with_many_blanks_is_read_in_linear_time() -> None:
    """Backtracking took minutes for this one."""
    with pytest.raises(Invalid, match="backslash"):
        check_dockerfile("# escape=x" + " " * (255 << 10) + "y\nFROM debian:12\n", {})
