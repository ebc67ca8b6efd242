"""`sari upgrade --requirements`: nothing is installed that differs from what the user pinned."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from sari.install.application import Application, build, program_of
from sari.install.errors import InstallError
from sari.install.source import pip_arguments
from testing.sari.wheels import sari_wheel, wheels

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    shutil.copytree(wheels(), folder, copy_function=os.link)
    shutil.copy(sari_wheel("3.94.0"), folder)
    return folder


def _pinned(registry: Path, target: Path) -> Path:
    lines = []
    for wheel in sorted(registry.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    target.write_text("\n".join(lines) + "\n")
    return target


def test_what_the_user_pinned_is_installed_and_anything_else_is_refused(registry: Path, tmp_path: Path) -> None:
    application = Application(tmp_path / "prefix")
    pinned = _pinned(registry, tmp_path / "requirements.txt")
    wanted = pip_arguments(None, str(registry), None, str(pinned))
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
    pinned.write_text("\n".join(line for line in pinned.read_text().splitlines() if not line.startswith("tomlkit")))
    with pytest.raises(InstallError):
        build(application, wanted)


def test_a_requirements_file_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("")
    for wheel, version in (("a.whl", None), (None, "3.1")):
        with pytest.raises(InstallError, match="leave out"):
            pip_arguments(wheel, None, version, str(file))
    with pytest.raises(InstallError, match="no requirements file"):
        pip_arguments(None, None, None, str(tmp_path / "missing"))
