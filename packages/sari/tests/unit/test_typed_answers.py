"""What a call says while there is no answer by types."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from sari.lsp.session import NoTypes, Place
from sari.lsp.typed import TypedAnswers


@pytest.fixture
def answers(tmp_path: Path) -> TypedAnswers:
    """A workspace for which a server is installed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/clangd").write_text("#!/bin/sh\n")
    (tmp_path / "bin/clangd").chmod(0o755)
    (tmp_path / "root").mkdir()
    environ = {"PATH": str(tmp_path / "bin")}
    return TypedAnswers(tmp_path / "root", tmp_path / "private", lambda: (), lambda: False, environ)


def test_a_call_that_would_fail_again_is_not_to_be_repeated(answers: TypedAnswers) -> None:
    """A quick answer by syntax came before the failure of each attempt, so clients were told to repeat it for ever."""
    defined = threading.Event()

    def define() -> Sequence[Place]:
        assert defined.wait(60)
        raise NoTypes("there is no project")

    try:
        first = answers.begin("implementations", "f", 1, define, lambda _: ())
        assert "repeat the call" in first.why_not()
        defined.set()
        assert first.future.exception(60) is not None
        assert first.why_not() == "No answer by types: there is no project."
        defined.clear()
        again = answers.begin("implementations", "f", 1, define, lambda _: ())
        assert not again.future.done()
        assert again.why_not() == "No answer by types: there is no project."
        # After a change it may be different.
        assert "repeat the call" in answers.begin("implementations", "f", 2, define, lambda _: ()).why_not()
    finally:
        defined.set()
        answers.close()
