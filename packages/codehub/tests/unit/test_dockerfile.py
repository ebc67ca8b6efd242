"""Dockerfiles of a repository: what is built, what is refused, and that only what was checked reaches the engine."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.dockerfile import check_dockerfile
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
    assert found.text == "FROM a AS dev\nRUN x\n"
    assert (found.bases, found.last_stage) == (("a",), "dev")


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
        ("ONBUILD ADD http://a /x", "ONBUILD"),
        ("RUN --mount=type=bind,from=evil,target=/x true", "BuildKit"),
        ("RUN --network=host true", "BuildKit"),
        ("RUN --security=insecure true", "BuildKit"),
        ("RUN <<EOF\nx\nEOF", "BuildKit"),
        ("COPY --from=$X /a /b", "without variables"),
        ("FROM $UNKNOWN", "not the name of an image"),
        ('FROM "a"', "not the name of an image"),
        ("FROM a b c", "FROM has the form"),
        ("FROM --platform=$X a", "platform"),
        ("INCLUDE evil", "is not known"),
        ("RUN", "has no argument"),
        ("RUN a\\", "goes on after the end"),
        ("RUN a\x00b", "control character"),
        ("RUN a\x0bADD http://x /y", "control character"),
    ],
)
def test_what_the_host_would_do_for_a_repository_is_refused(line: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        check_dockerfile(f"FROM a\n{line}\n", {})
    assert str(caught.value).startswith("line 2: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RUN x",
        "# escape=`\nFROM a",
        "FROM a\n" * 60,
        "ARG X=\nFROM a AS b\nFROM c\n",
        "FROM " + "a" * (300 << 10),
    ],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        check_dockerfile(text, {}, "none")


_PIECES = st.sampled_from(
    [
        "ADD ",
        "http://a",
        " /x",
        "FROM ",
        "a",
        "\\",
        "\n",
        "$X",
        '"',
        "#",
        " ",
        "RUN ",
        "[",
        "]",
        "--from=",
        "COPY ",
        "<<E",
        "\t",
    ]
)


@given(st.lists(_PIECES, max_size=30).map("".join), st.sampled_from(["", "dev"]))
def test_no_accepted_file_makes_the_engine_fetch_anything_but_its_bases(text: str, target: str) -> None:
    with contextlib.suppress(Invalid):
        found = check_dockerfile("FROM base AS dev\n" + text, {"X": "http://a"}, target)
        for line in found.text.splitlines():
            name, _, rest = line.partition(" ")
            assert not line.startswith("#")
            assert not line.endswith("\\")
            if name == "ADD":
                assert ":" not in rest.rpartition(" ")[0]
        named = [line.split(" AS ")[0].split()[-1] for line in found.text.splitlines() if line.startswith("FROM ")]
        assert set(named) <= {*found.bases, "dev", "codehub_last"}
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
    for name in ("\u00b2", "7" * 5000):
        assert check_dockerfile(f"FROM debian:12\nCOPY --from={name} /a /b\n", {}).bases == ("debian:12", name)


def test_a_directive_with_many_blanks_is_read_in_linear_time() -> None:
    """Backtracking took minutes for this one."""
    with pytest.raises(Invalid, match="backslash"):
        check_dockerfile("# escape=x" + " " * (255 << 10) + "y\nFROM debian:12\n", {})
