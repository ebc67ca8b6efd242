"""sari finds git and itself wherever they are: with a short or useless `PATH`, and inside the project that it serves."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import sari
from sari.index.ripgrep_process import PROGRAM
from sari.protocol.errors import SariError
from sari.registry import programs
from sari.registry.layout import check_outside, find_layout
from testing.sari.processes import daemons_of
from testing.sari.trees import git
from testing.sari.world import World


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program `tool`, one of the usual ones."""
    folder = tmp_path / "usr/bin"
    folder.mkdir(parents=True)
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    monkeypatch.setattr(programs, "_USUAL", (str(folder),))
    monkeypatch.setattr(programs, "_workspaces", set())
    return folder


def found(path: str | None, home: Path, *outside: Path) -> str | None:
    environ = {"HOME": str(home)} if path is None else {"HOME": str(home), "PATH": path}
    return programs.find_program("tool", environ, outside)


@pytest.mark.parametrize("path", [None, "", ".", "bin:.:", "/nowhere", "PROJECT/bin:."])
def test_a_program_of_the_system_is_found_whatever_path_holds(tmp_path: Path, system: Path, path: str | None) -> None:
    project = tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    shutil.copy(system / "tool", project / "bin/tool")
    given = path if path is None else path.replace("PROJECT", str(project))
    assert found(given, tmp_path / "home", project) == str(system / "tool")


def test_a_workspace_above_the_folders_of_the_system_or_the_user_hides_no_program(
    tmp_path: Path, system: Path
) -> None:
    home = tmp_path / "home/user"
    own = home / "tools/tool"
    own.parent.mkdir(parents=True)
    shutil.copy(system / "tool", own)
    for workspace in (Path("/"), tmp_path / "home", home):
        assert found(str(own.parent), home, workspace) == str(own)
        assert programs.search_path(str(own.parent), [workspace], {"HOME": str(home)}) == str(own.parent)
    # As with Homebrew, whose folder is a repository.
    for workspace in (tmp_path / "usr", system):
        programs.note_workspace(workspace)
        assert found("", home) == str(system / "tool")
        assert found(str(system), home) == str(system / "tool")
        # Only the usual folder: others inside are the workspace's.
        assert found(str(system / "inner"), home) == str(system / "tool")
    local = home / ".local/bin"
    local.mkdir(parents=True)
    shutil.copy(system / "tool", local / "other")
    assert programs.find_program("other", {"HOME": str(home), "PATH": ""}) == str(local / "other")


def test_a_usual_folder_that_is_a_link_into_a_workspace_provides_nothing(tmp_path: Path, system: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    (project / "bin").mkdir(parents=True)
    shutil.copy(system / "tool", project / "bin/other")
    (home / ".local").mkdir(parents=True)
    (home / ".local/bin").symlink_to(project / "bin")
    environ = {"HOME": str(home), "PATH": str(home / ".local/bin")}
    assert programs.find_program("other", environ, [project]) is None
    assert str(home / ".local/bin") not in programs.program_path(environ, [project])


def test_a_home_that_depends_on_the_current_directory_is_refused() -> None:
    with pytest.raises(SariError, match="absolute path"):
        find_layout({"HOME": "."})


def test_a_registry_in_the_home_directory_is_not_part_of_a_project_above_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "SARI_REGISTRY_FILE": str(tmp_path / "home/sari/server.json")}
    check_outside(find_layout(environ), "/", environ)
    check_outside(find_layout(environ), str(tmp_path), environ)
    with pytest.raises(SariError, match="inside the project"):
        check_outside(find_layout(environ), str(tmp_path / "home/sari"), environ)


@pytest.mark.needs("git")
def test_a_daemon_without_a_useful_path_still_finds_git(world: World) -> None:
    root = world.workspace("project", a__py="def one():\n    return 1\n")
    shutil.rmtree(root / ".git")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "the first change")
    world.environ["PATH"] = f"{root}:."
    shim = world.shim(root)
    shim.initialize()
    assert "the first change" in str(shim.call("history", {"path": "a.py"}))


def install_into(folder: Path) -> Path:
    """Make a virtual environment with this sari, as an editable installation does, and return its command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    sites = next(folder.glob("lib/python*/site-packages"))
    paths = [Path(sari.__file__).parent.parent, sysconfig.get_path("purelib")]
    (sites / "sari.pth").write_text("".join(f"{path}\n" for path in paths))
    (folder / "bin/rg").symlink_to(PROGRAM)
    command = folder / "bin/sari"
    command.write_text(f"#!{folder}/bin/python\nimport sys\nfrom sari.cli.main import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return command


def test_sari_inside_the_project_that_it_serves_works(world: World) -> None:
    root = world.workspace("project", a__py="def one():\n    return one()\n" * 200)
    command = install_into(root / ".venv")
    world.environ["PATH"] = f"{command.parent}:{world.environ['PATH']}"
    done = subprocess.run(
        [command, "symbols", "one", "--json"],
        env=world.environ,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    assert "a.py" in done.stdout
    (daemon,) = daemons_of(world.home)
    assert os.readlink(f"/proc/{daemon}/exe") == os.path.realpath(sys.executable)
    done = subprocess.run(
        [command, "doctor", "--json"], env=world.environ, cwd=root, capture_output=True, text=True, check=False
    )
    assert any(
        finding["level"] == "ok" and f"the command: {command}" in finding["what"]
        for finding in json.loads(done.stdout)
    ), done.stdout


@pytest.mark.parametrize("where", ["/", "HOME"])
def test_doctor_outside_of_projects_finds_the_command(world: World, where: str) -> None:
    folder = world.home if where == "HOME" else Path(where)
    command = install_into(world.home / "tools")
    world.environ["PATH"] = f"{command.parent}:{world.environ['PATH']}"
    done = subprocess.run(
        [command, "doctor", "--json"], env=world.environ, cwd=folder, capture_output=True, text=True, check=False
    )
    findings = json.loads(done.stdout)
    assert not any("not on the path" in finding["what"] for finding in findings), findings
    assert any(str(command) in finding["what"] for finding in findings), findings
