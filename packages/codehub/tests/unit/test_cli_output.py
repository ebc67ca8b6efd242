"""What the commands print does not control the terminal, whatever a workspace put into it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.cli import output
from codehub.cli.client import Client
from codehub.cli.follow import _lines, follow_setup

HOSTILE = "a\x1b]52;c;aGk=\x07b\x9b31mc\rd\u202ee\x7f"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text())
def test_a_printable_text_has_no_control_characters_and_others_are_kept(text: str) -> None:
    shown = output.printable(text)
    assert not CONTROL.search(shown)
    assert output.printable(shown) == shown
    if text.isprintable():
        assert shown == text


def test_a_table_shows_control_characters_and_keeps_rows_apart(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["NAME", "COMMAND"], [["api", HOSTILE], ["web", "true\nforged  row"]])
    shown = capsys.readouterr().out
    assert not CONTROL.search(shown)
    assert "\\x1b]52;c;aGk=\\x07" in shown
    assert len(shown.splitlines()) == 3


def test_a_command_that_waits_says_what_for_and_once() -> None:
    asked = {"status": "PROVISIONING", "operation": "NONE", "summary": {"label": "Waiting", "text": "about to start"}}
    why = "local-docker does not answer since 03:06 UTC"
    waits = {**asked, "blocked": {"reason": "Unreachable"}, "summary": {"label": "Waiting", "text": why}}
    starts = {**asked, "operation": "STARTING", "summary": {"label": "Starting", "text": ""}}
    printed: list[str] = []
    show = _lines("api", printed.append)
    for state in (asked, waits, waits, starts, starts):
        show(state)
    assert printed == [f"api: waiting, {why}", "api: starting"]
    assert output.doing({**waits, "status": "RUNNING"}) == why


class _Setups:
    """A client that reads one workspace, whose setup is further each time."""

    def __init__(self, *setups: dict[str, object]) -> None:
        self._left = list(setups)

    def get(self, path: str) -> dict[str, object]:
        return {"id": path, "name": "api", "desired_state": "RUNNING", "setup": self._left.pop(0)}


def test_each_step_of_the_setup_is_printed_once_by_its_whole_title(capsys: pytest.CaptureFixture[str]) -> None:
    def state(text: str, *steps: tuple[str, str]) -> dict[str, object]:
        over = all(each[1] == "done" for each in steps)
        items = [{"title": title, "state": is_} for title, is_ in steps]
        return {"state": "done" if over else "running", "text": text, "steps": items}

    clone, image = "Clone a:b", "Use the image example/python:3"
    setups = _Setups(
        state(f"{clone}: receiving objects, 1 %", (clone, "running"), (image, "pending")),
        state(f"{clone}: receiving objects, 2 %", (clone, "running"), (image, "pending")),
        state("", (clone, "done"), (image, "pending")),
        state(image, (clone, "done"), (image, "running")),
        state("", (clone, "done"), (image, "done")),
    )
    follow_setup(cast(Client, setups), {"id": "1", "name": "api"}, sleep=lambda _: None)
    assert capsys.readouterr().err.splitlines() == [f"api: {clone}", f"api: {image}"]


def test_a_line_is_coloured_by_us_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output.console().print(HOSTILE)
    assert not CONTROL.search(capsys.readouterr().out)


def test_json_is_the_same_value_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"command": HOSTILE, "name": "å"})
    shown = capsys.readouterr().out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert "å" in shown
    assert json.loads(shown) == {"command": HOSTILE, "name": "å"}


def test_the_output_of_programs_keeps_colours_on_a_terminal_and_everything_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coloured = "\x1b[1;31mred\x1b[0m 50 %\r100 %\n"
    assert output.program_output(HOSTILE) == HOSTILE
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert output.program_output(coloured) == coloured
    assert not re.search("[\x07\x1b\x9b]", output.program_output(HOSTILE))
    assert not re.search("\x1b", output.program_output("\x1b[2J\x1b[H\x1bc\x1b[6n"))


def test_a_log_line_is_one_line_without_control_characters() -> None:
    program = (
        "import structlog; from codehub.cli.logs import configure; configure('info', 'text');"
        f"structlog.get_logger().warning('it failed', error={HOSTILE + chr(10) + 'forged'!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    (line,) = done.stderr.splitlines()
    assert not CONTROL.search(line)
    assert "\\nforged" in line
