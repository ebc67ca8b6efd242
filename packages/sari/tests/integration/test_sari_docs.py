"""Every command in sari's pages is run, page by page, in the home of somebody who reads them; what they show is true."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.cli.parser import build_parser
from sari.install.clients import CLIENTS, Launch
from testing.sari.home import SARI, SariHome, sari_home
from testing.sari.wheels import pinned, sari_wheel, wheels, write_with_dependencies

REPOSITORY = Path(__file__).resolve().parents[4]
DOCS = REPOSITORY / "docs" / "sari"
# These two install sari themselves; the others find it installed.
INSTALLING = (DOCS / "getting-started.md",)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page not in INSTALLING]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as home:
        project = home.home / "my-project"
        (project / ".git").mkdir(parents=True)
        (home.home / "code").mkdir()
        (project / "main.py").write_text("def main():\n    pass\n")
        (home.home / ".local" / "bin").mkdir(parents=True)
        home.environment["PATH"] = f"{home.home}/.local/bin:/usr/local/bin:/usr/bin:/bin"
        # No browser is to open here.
        home.environment["BROWSER"] = "true"
        yield home


def read_along(home: SariHome, page: Path, folder: Path) -> str:
    """Run the page's blocks one after the other, as a reader does in one terminal; the first failure ends it."""
    script = "\n".join(f"echo '== {number}'\n{text}" for number, text in enumerate(blocks(page, "sh")))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(reader: SariHome, page: Path) -> None:
    (reader.home / ".local" / "bin" / "sari").symlink_to(SARI)
    read_along(reader, page, reader.home / "my-project")


@pytest.mark.timeout(1200)
def test_two_minutes_from_a_bare_python_to_a_search_and_back(reader: SariHome, tmp_path: Path) -> None:
    """Without a network: the registry is a folder of wheels. In a checkout of its own, which a build may write to."""
    checkout, registry = tmp_path / "checkout", tmp_path / "registry"
    ignored = shutil.ignore_patterns("__pycache__", "tests", "dist")
    shutil.copytree(REPOSITORY / "packages" / "sari", checkout / "packages" / "sari", ignore=ignored)
    for name in ("bootstrap.sh", "install.py"):
        shutil.copy(REPOSITORY / name, checkout / name)
    shutil.copytree(wheels(), registry, copy_function=os.link)
    # The wheels here are repacked, so that their hashes are not those of the release.
    dependencies = pinned(registry)
    (checkout / "packages/sari/src/sari/install/dependencies.txt").write_text(dependencies)
    newer = sari_wheel("3.93.0")
    write_with_dependencies(newer, registry / newer.name, dependencies)
    quiet = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(registry), "PIP_NO_COMPILE": "1"}
    reader.environment |= quiet
    codex = reader.home / ".codex" / "config.toml"
    said = read_along(reader, INSTALLING[0], checkout)
    assert "main.py:1:def main():" in said
    assert "function main" in said
    assert "sari 3.93.0 is installed" in said
    assert not codex.exists(), "what installing made is gone again"
    assert not (reader.home / ".local" / "bin" / "sari").exists()


def test_a_command_named_in_a_sentence_is_one_that_sari_has() -> None:
    pages = [*DOCS.rglob("*.md"), REPOSITORY / "README.md", REPOSITORY / "packages" / "sari" / "README.md"]
    named = {span for page in pages for span in re.findall(r"`(sari [^`…]*)`", page.read_text())}
    assert len(named) >= 9
    for span in sorted(named):
        for text in _alternatives(span):
            words = shlex.split(text.replace("NAME", "codex"))[1:]
            build_parser().parse_args(words)


def _alternatives(text: str) -> list[str]:
    """`a b|c` is `a b` and `a c`."""
    choices = [word.split("|") for word in text.split(" ")]
    return [" ".join(words) for words in itertools.product(*choices)]


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_a_clients_page_shows_what_is_written(client: object) -> None:
    from sari.install.clients import Client

    assert isinstance(client, Client)
    shown = blocks(DOCS / "clients" / f"{client.name}.md", "toml" if client.dialect is None else "json")
    assert [text.strip() for text in shown] == [client.by_hand(Launch("/home/you/.local/bin/sari")).strip()]
