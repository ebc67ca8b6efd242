"""The check of Dockerfiles against the parser of a real engine: it fetches and uses nothing that the check did not see.

The images and addresses in these files lead to a server of the test, which records what the engine asks it for. It is also
the engine's proxy, so that nothing leaves this machine.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from codehub.domain.dockerfile import check_dockerfile, with_labels
from codehub.domain.errors import Invalid
from codehub.domain.images import parse_image
from testing.codehub.docker import DockerEngine

pytestmark = [pytest.mark.needs("docker", "root"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(600)]
_MADE_UP = 4_000 if os.environ.get("CODEHUB_TEST_SOAK") == "1" else 300
_ARGUMENTS = {"GIVEN": "I"}
_DEFAULT = "registry-1.docker.io"

# `I` is an image of the server, `U` an address there. After FROM scratch, so that nothing has to be pulled or run.
_FETCHED = [
    "FROM I",
    "from I",
    "FROM\tI",
    "FROM \\\n I",
    "FROM \\ \t\n\n# comment\n  # another\n\nI",
    "\ufeffFROM I",
    "FROM I\r\n",
    "FROM scratch\r\nCOPY \\\r\n--from=I / /\r\n",
    "ARG B=I\nFROM $B",
    "ARG B='I'\nFROM ${B}",
    'ARG B="I"\nFROM ${B}',
    "FROM ${B:-I}",
    "ARG A=1\nFROM ${A:+I}",
    "ARG A=1 B=I\nFROM $B",
    "ARG GIVEN=scratch\nFROM $GIVEN",
    "FROM --platform=linux/amd64 I",
    "# escape=`\nFROM `\nI",
    "#ESCAPE = `\nFROM scratch\nCOPY `\n--from=I / /",
    "# syntax=I\n# escape=`\nFROM scratch\nADD `\nU /x",
    "FROM scratch\nCOPY --from=I / /",
    "FROM scratch\ncopy --chown=0 --from=I / /",
    'FROM scratch\nCOPY --"from"=I / /',
    "FROM scratch\nCOPY --fr\\om=I / /",
    "FROM scratch\nCOPY --from='I' / /",
    'FROM scratch\nCOPY --from=I ["/", "/"]',
    "FROM scratch\nCO\\\nPY --fr\\\nom=I / /",
    "FROM scratch AS a\nFROM a\nCOPY --from=I / /",
    "FROM scratch AS x\nCOPY --from=x / /",
    "FROM scratch AS x\nCOPY --from=abcdef123456 / /",
    "FROM other",
    "FROM other.example/team/app:1",
    "FROM scratch\nADD U /x",
    "FROM scratch\nadd\tU /x",
    'FROM scratch\nADD ["U", "/x"]',
    'FROM scratch\nADD [ "U" , "/x" ] rest',
    'FROM scratch\nADD ["h\\u0074tp:J", "/x"]',
    "FROM scratch\nADD --chown=0 U /x",
    "FROM scratch\nADD --chown=0\tU /x",
    "FROM scratch\nADD --chown=0\x0bU /x",
    "FROM scratch\nADD --chown=0\u00a0U /x",
    "FROM scratch\nENV A=U\nADD $A /x",
    "FROM scratch\nARG A=U\nADD ${A} /x",
    "FROM scratch\nADD ${A:-U} /x",
    'FROM scratch\nADD "U" /x',
    "FROM scratch\nADD http\\:J /x",
    "FROM scratch\nLABEL a=b\u2028\nADD U /x",
    "FROM scratch\nLABEL a=b\x00\nADD U /x",
    "FROM scratch\n\u00a0ADD U /x",
    "FROM scratch\n\u3000# no comment\nADD U /x",
    "FROM scratch\nLABEL a=b \\\u00a0\nADD U /x",
    "FROM scratch\n# comment \\\nADD U /x",
    'FROM scratch\nLABEL a="b \\\n" \nADD U /x',
    "FROM scratch\nLABEL a=\\\\\nADD U /x",
]
# An engine does not fetch these, or refuses the file.
_NOT_FETCHED = [
    "FROM scratch",
    "FROM scratch\nADD f /g\nLABEL a=U b=I",
    "FROM scratch AS a\nFROM scratch\nFROM a AS last\nLABEL b=c",
    "FROM scratch AS one\nCOPY f /f\nFROM scratch\nCOPY --from=ONE /f /g\nCOPY --from=0 /f /h",
    "# syntax=I\nFROM scratch\nLABEL a=b",
    "# check=x\n# escape=\\\nFROM scratch\nLABEL \\\n# comment\n\n a=b",
    "\n# escape=`\nFROM scratch\nLABEL a=`\nLABEL b=c",
    "FROM scratch\nLABEL a=b \\\n# ADD U /x\n",
    "FROM scratch\nLABEL a=b\rADD U /x",
    "FROM scratch\rADD U /x",
    "FROM scratch\nLABEL a=b\x0cADD U /x",
    "FROM scratch\nLABEL a=b\u2028ADD U /x",
    "FROM scratch\nLABEL a=b\u2029FROM I",
    "FROM scratch\nLABEL a=b\x85ADD U /x",
    "FROM scratch\nLABEL a=b\x1cADD U /x",
    "FROM scratch\nADD\u00a0U /x",
    "FROM\u3000I",
    "FROM scratch\nCOPY\u00a0--from=I / /",
    "FROM scratch\nCOPY \u00a0--from=I / /",
    "FROM scratch\nCOPY --FROM=I / /",
    "FROM scratch\nCOPY --from=$GIVEN / /",
    "FROM scratch\nCOPY --from I / /",
    "FROM scratch\nCOPY f --from=I /x/",
    "FROM scratch\nCOPY --from=I --from=0 / /",
    "FROM scratch AS x\nCOPY --from=0 / /",
    "FROM scratch\nONBUILD ADD U /x",
    "FROM scratch\nONBUILD COPY --from=I / /",
    "FROM scratch\nRUN --mount=type=bind,from=I,target=/m true",
    "FROM scratch\nRUN <<E\nADD U /x\nE",
    "FROM scratch\nCOPY <<E /x\nADD U /x\nE",
    "FROM scratch\nLABEL a=<<E\nLABEL b=c\nE",
    "FROM scratch\nADD git@127.0.0.1:x /x",
    "FROM scratch\nADD ftp:J /x",
    "FROM scratch\nLABEL a=" + "b" * 70_000 + "\nADD U /x",
    "FROM scratch\nLABEL a=" + "b" * 65_000 + "\nLABEL b=c",
    "FROM scratch AS I\nFROM I\nLABEL a=b",
    "FROM scratch\nLABEL a='\nADD U /x\nLABEL b='",
    "FROM scratch AS I\nFROM scratch\nADD U /x",
    "FROM SCRATCH",
    "FROM $UNKNOWN",
    "INCLUDE I",
]  # fmt: skip
# What parsers disagree about, for files that nobody thought of.
_BEGINNINGS = (
    "COPY ",
    "COPY --from=",
    "COPY --chown=0 ",
    "ADD ",
    "ADD --chown=0",
    "FROM ",
    "FROM scratch AS ",
    "ARG B=",
    "",
)
_PIECES = (
    "I", "U", "scratch", "f", "/x", "/x/", "x", "0", "1", " ", " ", " ", " f /x", "--from=", "--chown=0", "$B", "${B:-I}",
    '["', '", "', '"]', "'", '"', "\\", "\\\n", "\\ \n", "\n", "\n# x\n", "\r\n", "\r", "\t", "\u00a0", "\u2028",
    "\x85", "\x0b", "\x00", "\ufeff", "\n# escape=`\n", "`\n", "<<E", "#", "=", ":", "ADD ", "COPY ", "FROM ",
)  # fmt: skip


def _made_up(rest: random.Random) -> str:
    lines = [rest.choice(_BEGINNINGS) + "".join(rest.choices(_PIECES, k=rest.randint(1, 6))) for _ in range(2)]
    return "\n".join(["FROM scratch AS x", *lines[: rest.randint(1, 2)]])


@dataclass
class Server:
    """A registry that has nothing, a web server, and a proxy that connects to nothing."""

    port: int
    asked: set[str] = field(default_factory=set)

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self.port}/evil:1"

    def filled(self, text: str) -> str:
        there = f"//127.0.0.1:{self.port}/x"
        words = {"I": self.image, "U": f"http:{there}", "J": there}
        # Upper case is otherwise used for instructions and names of variables only.
        pieces = [(piece, place) for place, piece in enumerate(_split(text))]
        return "".join(words[piece] if place % 2 else piece for piece, place in pieces)


def _split(text: str) -> list[str]:
    """Text, placeholder, text, … A placeholder is a single letter that is no part of a word."""
    pieces, last = [], 0
    for at, char in enumerate(text):
        around = text[at - 1 : at] + text[at + 1 : at + 2]
        if char in "IUJ" and not any(each.isascii() and (each.isalnum() or each == "_") for each in around):
            pieces += [text[last:at], char]
            last = at + 1
    return [*pieces, text[last:]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            made.asked.add("connected")
            super().handle()

        def do_GET(self) -> None:
            made.asked.add(urlsplit(self.path).hostname or self.path)
            found = not self.path.startswith("/v2/") or self.path == "/v2/"
            self.send_response(200 if found else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_CONNECT(self) -> None:
            made.asked.add(self.path.rpartition(":")[0])
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:
            """Every request is recorded already."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made = Server(listening.server_address[1])
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            thread.join()


@dataclass
class Differential:
    client: httpx.Client
    server: Server

    def fetched(self, dockerfile: bytes) -> set[str]:
        """Return what the engine asks the server for."""
        self.server.asked.clear()
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as out:
            for name, content in (("D", dockerfile), ("f", b"of the repository")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
        params = {
            "version": "1", "dockerfile": "D", "networkmode": "none", "rm": "true", "forcerm": "true",
            "buildargs": json.dumps(self.arguments),
        }  # fmt: skip
        headers = {"Content-Type": "application/x-tar"}
        self.client.post("http://docker/build", params=params, headers=headers, content=context.getvalue())
        return set(self.server.asked)

    @property
    def arguments(self) -> dict[str, str]:
        return {name: self.server.filled(value) for name, value in _ARGUMENTS.items()}

    def check(self, text: str) -> bool:
        """Assert that the engine fetches nothing that the check did not see. Return whether the check accepts the file."""
        raw = self.server.filled(text).encode()
        try:
            recipe = check_dockerfile(raw.decode("utf-8", "replace"), self.arguments)
        except Invalid:
            return False
        expected: set[str] = set()
        for ref in map(parse_image, recipe.bases):
            is_here = ref.registry == self.server.image.partition("/")[0]
            manifest = f"/v2/{ref.repository}/manifests/{ref.tag}"
            expected |= {"connected", *({manifest, "/v2/"} if is_here else {_host(ref.registry) or _DEFAULT})}
        assert self.fetched(with_labels(recipe.text, {"l": "v"}).encode()) <= expected, (text, recipe)
        return True


def _host(registry: str) -> str:
    return re.sub(r":[0-9]+\Z", "", registry)


@pytest.fixture(scope="module")
def differential(server: Server) -> Iterator[Differential]:
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="chdocker-", dir="/var/tmp")))
    proxy = f"http://127.0.0.1:{server.port}"
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            environment.setenv(name, proxy)
        for name in ("NO_PROXY", "no_proxy"):
            environment.delenv(name, raising=False)
        try:
            engine.start()
            with engine.client() as client:
                yield Differential(client, server)
        finally:
            engine.stop()


def test_what_an_engine_fetches_for_a_dockerfile_was_seen_by_the_check(differential: Differential) -> None:
    accepted = [text for text in _FETCHED if differential.check(text)]
    assert len(accepted) >= 10, "the usual ways to name an image are allowed, and checked"


def test_what_an_engine_does_not_fetch_is_not_fetched_once_it_is_written_out_again(
    differential: Differential,
) -> None:
    assert len([text for text in _NOT_FETCHED if differential.check(text)]) >= 5


def test_dockerfiles_that_nobody_thought_of_are_read_as_the_engine_reads_them(differential: Differential) -> None:
    rest = random.Random(20_261_118)
    accepted = [text for _ in range(_MADE_UP) if differential.check(text := _made_up(rest))]
    assert len(accepted) >= _MADE_UP // 20, "some of them are Dockerfiles"


@pytest.mark.soak
def test_the_engine_really_fetches_what_the_test_takes_for_an_attack(differential: Differential) -> None:
    silent = [text for text in _FETCHED if not differential.fetched(differential.server.filled(text).encode())]
    assert silent == []
    loud = [text for text in _NOT_FETCHED if differential.fetched(differential.server.filled(text).encode())]
    assert loud == []
