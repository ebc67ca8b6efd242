"""`codehub ide install`: killed in the middle it goes on; only what is in the lock file is kept. Real npm, own registry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codehub.adapters.ide.code_server import CodeServerInstall, CodeServerLock
from codehub.domain.errors import Terminal
from codehub.domain.model import Progress
from testing.codehub.npm_registry import VERSION, NpmRegistry, npm_registry

pytestmark = pytest.mark.timeout(600)
_INSTALL = """
import sys
from pathlib import Path
from codehub.adapters.ide.code_server import CodeServerInstall, CodeServerLock
lock = CodeServerLock.load()
CodeServerInstall(Path(sys.argv[1]), CodeServerLock(sys.argv[2], sys.argv[3], lock.node)).ensure(print)
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[NpmRegistry]:
    with npm_registry() as made:
        monkeypatch.setenv("npm_config_registry", made.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        for name in ("HTTP_PROXY", "http_proxy", "npm_config_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield made


def lock(integrity: str) -> CodeServerLock:
    return CodeServerLock(VERSION, integrity, CodeServerLock.load().node)


def test_an_install_that_was_killed_goes_on_where_it_was(tmp_path: Path, registry: NpmRegistry) -> None:
    ide = tmp_path / "ide"
    words = [sys.executable, "-c", _INSTALL, str(ide), VERSION, registry.integrity]
    first = subprocess.Popen(words, env=dict(os.environ), stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        assert registry.requested.wait(120), "npm asks for code-server"
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # npm with it
        first.wait()
    install = CodeServerInstall(ide, lock(registry.integrity))
    partial = ide / f"code-server-{VERSION}.partial"
    assert not install.installed
    assert (partial / "steps.done").read_text().split() == ["node"]
    node = (partial / "node/bin/node").stat()
    registry.let.set()
    seen: list[Progress] = []
    bin_dir = install.ensure(seen.append)
    assert seen[-1] == Progress("install code-server", 5, 5, "steps")
    assert (install.home / "node/bin/node").stat().st_ino == node.st_ino, "what was done is not done again"
    assert not partial.exists()
    said = subprocess.run(
        [bin_dir / "code-server"], capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)}
    )
    assert said.stdout == "the tiny code-server\n"
    settings = tmp_path / ".local/share/code-server/User/settings.json"
    assert json.loads(settings.read_text()) == {
        "chat.disableAIFeatures": True,
        "workbench.secondarySideBar.defaultVisibility": "hidden",
    }


def test_a_code_server_that_is_not_the_locked_one_is_not_kept(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.let.set()
    install = CodeServerInstall(tmp_path / "ide", lock("sha512-of-another"))
    with pytest.raises(Terminal, match="not the one in the lock file"):
        install.ensure(lambda progress: None)
    assert not install.installed
    assert not list((tmp_path / "ide").glob("code-server-*"))
