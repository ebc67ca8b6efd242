"""What every command does when it is called wrongly, or needs a person where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from codehub.cli import main as cli_main
from codehub.cli.main import cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["codehub", *words])
    return cli_main._run()


@pytest.mark.parametrize("words", sorted(commands(cli)), ids=" ".join)
def test_an_unknown_option_is_a_usage_error(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words, "--no-such-option") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no such option" in shown.err.lower()


@pytest.mark.parametrize(
    "words", [("admin", "users", "reset", "ada"), ("admin", "users", "ls"), ("login",)], ids=" ".join
)
def test_a_command_that_would_ask_for_a_password_says_what_to_use_without_a_terminal(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CODEHUB_PASSWORD", raising=False)
    monkeypatch.setenv("CODEHUB_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    with open("/dev/null") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run(monkeypatch, *words) == 2
    assert "without a terminal" in capsys.readouterr().err
