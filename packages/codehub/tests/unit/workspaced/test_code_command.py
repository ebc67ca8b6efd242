"""The IDE's `code` command in other shells of a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.workspaced.code_command import offer


@pytest.fixture
def ide(tmp_path: Path) -> Path:
    folder = tmp_path / "ide/bin"
    folder.mkdir(parents=True)
    for name in ("code-server", "code"):
        (folder / name).touch(0o755)
    return folder


def test_code_is_on_the_path_and_in_login_shells(ide: Path, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    for _ in range(2):
        offer(str(ide / "code-server"), str(tmp_path), env)
    assert env["PATH"] == f"/usr/bin:/bin:{ide}"
    assert (tmp_path / ".local/bin/code").resolve() == ide / "code"


def test_an_ide_without_the_command_changes_nothing(ide: Path, tmp_path: Path) -> None:
    (ide / "code").unlink()
    env = {"PATH": "/bin"}
    offer(str(ide / "code-server"), str(tmp_path), env)
    offer("jupyter-lab", str(tmp_path), env)
    assert env == {"PATH": "/bin"}
    assert not (tmp_path / ".local").exists()


def test_a_file_of_the_users_stays_and_a_link_to_an_ide_that_is_gone_does_not(ide: Path, tmp_path: Path) -> None:
    own = tmp_path / ".local/bin/code"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    offer(str(ide / "code-server"), str(tmp_path), {})
    assert own.read_text() == "mine"
    own.unlink()
    own.symlink_to(tmp_path / "gone/code")
    offer(str(ide / "code-server"), str(tmp_path), {})
    assert own.resolve() == ide / "code"


def test_a_home_that_cannot_be_written_is_no_reason_not_to_start(ide: Path, tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    env = {"PATH": "/bin"}
    offer(str(ide / "code-server"), str(tmp_path), env)
    assert env["PATH"] == f"/bin:{ide}"
