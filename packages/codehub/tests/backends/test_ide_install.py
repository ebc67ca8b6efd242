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


_LOG = """
const log = require(process.argv[1]);
log.setFlushOn(0);
log.createAsyncRotatingLogger("server", process.argv[2], 200, 2).then((made) => {
  made.setPattern("%v");
  made.debug("not at this level");
  for (let number = 1; number <= 9; number += 1) made.info(`message ${number}`);
  made.clearFormatters();
  made.error("as it is");
  made.drop();
  made.error("after the end");
  return log.createAsyncRotatingLogger("nowhere", `${process.argv[2]}/below/a/file.log`, 200, 2);
}).then((made) => made.error("without a file"));
"""


def test_an_older_install_gets_log_files_without_the_native_module(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.let.set()
    install = CodeServerInstall(tmp_path / "ide", lock(registry.integrity))
    install.ensure(lambda progress: None)
    package = install.home / "node_modules/code-server/lib/vscode/node_modules/@vscode/spdlog"
    package.mkdir(parents=True)
    (package / "index.js").write_text("require('bindings')('spdlog')\n")
    (finished,) = install.home.glob("finished-*")
    finished.rename(install.home / "finished-3")
    install.ensure(lambda progress: None)
    file = tmp_path / "logs/server.log"
    words = [str(install.node_dir / "node"), "-e", _LOG, str(package), str(file)]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert said.stdout + said.stderr == ""
    lines = file.with_name("server.1.log").read_text() + file.read_text()
    assert [line[24:] for line in lines.splitlines()][-3:] == ["[info] message 8", "[info] message 9", ""]
    assert lines.endswith("as it is")
    assert file.stat().st_size <= 200

    (package / "build/Release").mkdir(parents=True)
    (package / "build/Release/spdlog.node").touch()
    (package / "index.js").write_text("native\n")
    (install.home / finished.name).unlink()
    install.ensure(lambda progress: None)
    assert (package / "index.js").read_text() == "native\n", "somebody compiled it"


def test_a_code_server_that_is_not_the_locked_one_is_not_kept(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.let.set()
    install = CodeServerInstall(tmp_path / "ide", lock("sha512-of-another"))
    with pytest.raises(Terminal, match="not the one in the lock file"):
        install.ensure(lambda progress: None)
    assert not install.installed
    assert not list((tmp_path / "ide").glob("code-server-*"))
