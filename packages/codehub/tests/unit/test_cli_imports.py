"""A command imports what it needs and nothing else: starting `codehub` must not take longer than what it then does.

Names of modules, not seconds: a loaded machine changes the time, never the modules.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from codehub.cli.lazy_group import LazyGroup
from testing.ports import free_ports

# The server's frameworks and drivers, and what other libraries import only to colour their own command lines.
HEAVY = {"asyncio", "fastapi", "starlette", "uvicorn", "pydantic", "psycopg", "redis", "rich", "pygments"}
RUN = "import sys; from codehub.cli.main import main; code = main(); print(*sys.modules, sep='\\n', file=sys.stderr)"


def modules_of(home: Path, *words: str, named: bool = True) -> set[str]:
    (nobody,) = free_ports(1)
    environment = {**os.environ, "HOME": str(home), "CODEHUB_DATA_DIR": str(home)}
    if named:
        environment["CODEHUB_SERVER"] = f"http://127.0.0.1:{nobody}"
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *words], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(ran.stderr.split())
    assert "codehub.cli.main" in loaded
    return loaded


@pytest.mark.parametrize(
    "words", [("ws", "ls"), ("ws", "start", "api"), ("ws", "exec", "api", "--", "ls"), ("whoami",)]
)
def test_a_command_of_the_server_loads_neither_the_server_nor_the_domain(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    loaded = modules_of(tmp_path, *words)
    assert "httpx" in loaded, "it asked the server"
    assert loaded & HEAVY == set()
    assert {name for name in loaded if name.startswith("codehub.domain.")} <= {
        "codehub.domain.errors",
        "codehub.domain.units",
    }
    assert "codehub.settings" not in loaded


def test_looking_for_a_codehub_on_this_machine_loads_no_settings(tmp_path: Path) -> None:
    loaded = modules_of(tmp_path, "login", named=False)
    assert "codehub.data_dir" in loaded, "it looked for one"
    assert loaded & (HEAVY | {"codehub.settings"}) == set()


def test_listing_workspaces_loads_no_other_command(tmp_path: Path) -> None:
    loaded = modules_of(tmp_path, "ws", "ls")
    others = {f"codehub.cli.{name}" for name in ("ws_change", "ws_inside", "ws_copy", "admin")}
    assert loaded & (others | {"tarfile"}) == set()


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("ws", "--help")])
def test_help_and_version_load_no_http_client(tmp_path: Path, words: tuple[str, ...]) -> None:
    loaded = modules_of(tmp_path, *words)
    assert loaded & (HEAVY | {"httpx", "httpcore", "ssl"}) == set()


@pytest.mark.parametrize("part", ["proxy", "coordinator"])
def test_a_proxy_and_a_coordinator_load_nothing_of_the_api(tmp_path: Path, part: str) -> None:
    loaded = modules_of(tmp_path, "serve", part, "--help")
    assert "codehub.wiring" in loaded
    assert loaded & {"fastapi", "starlette", "uvicorn", "codehub.api", "codehub.api.app"} == set()


@pytest.mark.parametrize("part", ["api", "proxy", "coordinator"])
def test_dockers_client_is_not_loaded_without_an_engine(tmp_path: Path, part: str) -> None:
    loaded = modules_of(tmp_path, "serve", part, "--help")
    assert "codehub.adapters.docker.engine" in loaded
    assert loaded & {"aiodocker", "aiohttp"} == set()


def test_commands_are_imported_without_garbage_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_command.py").write_text(
        "import gc, click\nwas_enabled = gc.isenabled()\n@click.command()\ndef command():\n    click.echo(was_enabled)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    group = LazyGroup(entries={"one": ("imported_command", "command", "A command.")})
    before = gc.get_freeze_count()
    try:
        assert CliRunner().invoke(group, ["one"]).output == "False\n"
        assert gc.isenabled()
        assert gc.get_freeze_count() > before, "later collections leave the imported objects out"
    finally:
        gc.unfreeze()
