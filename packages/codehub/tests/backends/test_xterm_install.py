"""xterm.js from npm: whole or not there, only the one in the lock file, and a reason when it cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from codehub.adapters.ide import xterm
from codehub.adapters.ide.xterm import XtermInstall
from codehub.domain.errors import NotFound, Terminal, Transient
from codehub.services.terminal_program import TerminalProgramFiles


def test_the_pinned_packages_are_installed_once_and_served_as_files(tmp_path: Path) -> None:
    install = XtermInstall(tmp_path / "ide")
    assert not install.installed
    home = install.ensure()
    files = install.files()
    assert set(files) == {"xterm.mjs", "xterm.css", "addon-fit.mjs"}
    assert b"Terminal" in files["xterm.mjs"]
    assert sorted(path.name for path in home.parent.iterdir()) == [".install-xterm.lock", home.name]
    marked = home / "marked"
    marked.touch()
    assert XtermInstall(tmp_path / "ide").ensure() == home
    assert marked.exists(), "it was not installed again"


def test_the_one_in_the_image_is_used_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xterm, "PREPARED", tmp_path / "image")
    name = XtermInstall(tmp_path / "ide").home.name
    (tmp_path / "image" / name).mkdir(parents=True)
    install = XtermInstall(tmp_path / "ide")
    assert install.installed
    assert install.ensure() == tmp_path / "image" / name
    assert not (tmp_path / "ide").exists()


def test_packages_that_are_not_the_pinned_ones_are_refused_and_removed(tmp_path: Path) -> None:
    install = XtermInstall(tmp_path)
    install._lock["@xterm/addon-fit"]["integrity"] = "sha512-other"
    with pytest.raises(Terminal, match="not the one in the lock file"):
        install.ensure()
    assert not install.installed
    assert [path.name for path in tmp_path.iterdir()] == [".install-xterm.lock"]


def test_without_a_registry_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    with pytest.raises(Transient, match=r"npm could not install xterm\.js, which the web terminal needs"):
        XtermInstall(tmp_path / "ide").ensure()


class Failing:
    """A program that cannot be installed the first time."""

    version = "1"

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tries = 0

    @property
    def installed(self) -> bool:
        return self.place.exists()

    def ensure(self) -> Path:
        self.tries += 1
        if self.tries == 1:
            raise Transient("the registry does not answer")
        self.place.touch()
        return self.place

    def files(self) -> Mapping[str, bytes]:
        return {"a.js": b"1"}


async def test_a_failed_attempt_is_reported_and_the_next_request_tries_again(tmp_path: Path) -> None:
    program = Failing(tmp_path / "done")
    files = TerminalProgramFiles(program)
    with pytest.raises(NotFound):
        await files.read("a.js")
    assert files.begin() is None
    assert files.begin() is None, "one attempt at a time"
    async with asyncio.timeout(60):
        while (problem := files.begin()) is None and not files.ready:
            await asyncio.sleep(0.01)
    assert problem == "the registry does not answer"
    assert files.begin() is None
    async with asyncio.timeout(60):
        while not files.ready:
            await asyncio.sleep(0.01)
    assert program.tries == 2
    assert await files.read("a.js") == b"1"
    with pytest.raises(NotFound):
        await files.read("../secret")
