"""`sari upgrade`: nothing is installed that differs from what the release, or the user, pinned."""

import os
import re
import shutil
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from sari.install.application import Application, build, program_of
from sari.install.errors import InstallError
from sari.install.source import choose_source
from testing.sari.wheels import REPOSITORY, pinned, sari_wheel, wheels, write_with_dependencies

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    shutil.copytree(wheels(), folder, copy_function=os.link)
    shutil.copy(sari_wheel("3.94.0"), folder)
    return folder


def test_what_the_user_pinned_is_installed_and_anything_else_is_refused(registry: Path, tmp_path: Path) -> None:
    application = Application(tmp_path / "prefix")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(pinned(registry))
    wanted = choose_source(None, str(registry), None, str(requirements))
    environment = build(application, wanted)
    assert (program_of(environment).parent / "python").exists()
    made = sorted(application.folder.iterdir())
    # The same names and versions with other content: a registry that was tampered with.
    for name in ("sari", "tomlkit"):
        (wheel,) = registry.glob(f"{name}-*.whl")
        before = wheel.read_bytes()
        wheel.unlink()
        wheel.write_bytes(before + b"\0")
        with pytest.raises(InstallError):
            build(application, wanted)
        wheel.write_bytes(before)
        assert sorted(application.folder.iterdir()) == made, "nothing is left of the attempt"
    # A dependency that is not pinned is refused as well.
    requirements.write_text(pinned(registry, leave_out="tomlkit"))
    with pytest.raises(InstallError):
        build(application, wanted)


def test_a_requirements_file_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("")
    for wheel, version in (("a.whl", None), (None, "3.1")):
        with pytest.raises(InstallError, match="leave out"):
            choose_source(wheel, None, version, str(file))
    with pytest.raises(InstallError, match="no requirements file"):
        choose_source(None, None, None, str(tmp_path / "missing"))


@pytest.fixture
def package_registry(registry: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip uses in place of the package registry, so that nothing is downloaded."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(registry))
    return registry


def test_dependencies_that_differ_from_those_of_the_release_are_refused(
    package_registry: Path, tmp_path: Path
) -> None:
    """The wheels here are repacked, so their names and versions are right and their hashes are not."""
    application = Application(tmp_path / "prefix")
    with pytest.raises(InstallError, match=r"(?s)dependencies could not be installed as this version pins them.*"):
        build(application, choose_source(None, None, "3.94.0"))
    assert list(application.folder.iterdir()) == [], "nothing is left of the attempt"


def test_the_dependencies_of_the_release_are_installed_and_no_others(package_registry: Path, tmp_path: Path) -> None:
    application = Application(tmp_path / "prefix")
    (wheel,) = package_registry.glob("sari-*.whl")
    write_with_dependencies(wheel, wheel, pinned(package_registry, leave_out="sari"))
    environment = build(application, choose_source(None, None, "3.94.0"))
    assert next(environment.glob("lib/python*/site-packages/tomlkit"), None) is not None
    write_with_dependencies(wheel, wheel, pinned(wheels(), leave_out="tree_sitter_yaml"))
    with pytest.raises(InstallError, match="as this version pins them"):
        build(application, choose_source(None, None, "3.94.0"))
    write_with_dependencies(wheel, wheel, "")
    with pytest.raises(InstallError, match="does not pin its dependencies"):
        build(application, choose_source(None, None, "3.94.0"))
    assert list(application.folder.iterdir()) == [environment]


def test_the_release_pins_every_dependency_in_the_version_that_is_tested() -> None:
    package = REPOSITORY / "packages/sari"
    text = (package / "src/sari/install/dependencies.txt").read_text()
    listed = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    declared = tomllib.loads((package / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[^\w.-]", one)[0] for one in declared} <= listed.keys()
    assert {name: metadata.version(name) for name in listed} == listed
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "//" not in text
