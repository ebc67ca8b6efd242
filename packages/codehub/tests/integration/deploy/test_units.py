"""What production is started from: systemd units and the compose file say what the docs promise."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from codehub.settings import Settings
from testing.codehub.edge import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PARTS = ("api", "proxy", "coordinator")


def _unit(path: Path) -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_there_is_and_says_where_its_settings_are(path: Path) -> None:
    unit = _unit(path)
    part = path.stem.removeprefix("codehub-")
    words = unit["Service"]["ExecStart"].split()
    assert words[1:] == (["migrate"] if part == "migrate" else ["serve", part])
    # Only what starts workspaces, each as a user of its own, is root.
    assert unit["Service"]["User"] == ("root" if part == "coordinator" else "codehub")
    assert unit["Service"]["Group"] == "codehub"
    assert unit["Service"]["LoadCredential"] == "codehub.env:/etc/codehub/codehub.env"
    assert "EnvironmentFile" not in unit["Service"]


def test_workspaces_outlive_the_coordinators_unit() -> None:
    service = _unit(DEPLOY / "systemd/codehub-coordinator.service")["Service"]
    assert service["KillMode"] == "process"
    assert service["SendSIGKILL"] == "no"
    assert "PrivateTmp" not in service, "it would be taken from the workspaces that go on"


@pytest.mark.needs("systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """All of them together, as they name each other; only the program is one that is there."""
    for path in UNITS:
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/codehub/bin/codehub", "/bin/true"))
    units = [str(tmp_path / path.name) for path in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=120
    )
    assert [line for line in done.stderr.splitlines() if "codehub" in line] == []


@pytest.mark.needs("systemd")
def test_systemd_would_say_what_is_wrong_with_a_unit(tmp_path: Path) -> None:
    """That the test above can fail."""
    broken = tmp_path / "codehub-api.service"
    broken.write_text(
        (DEPLOY / "systemd/codehub-api.service").read_text().replace("Restart=always", "Restart=sometimes")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", broken], capture_output=True, text=True, timeout=120
    )
    assert "codehub-api.service" in done.stderr
    assert "sometimes" in done.stderr


def test_the_example_environment_names_only_settings_there_are() -> None:
    known = {field.alias for field in Settings.model_fields.values()}
    for line in (DEPLOY / "codehub.env.example").read_text().splitlines():
        if line and not line.startswith("#"):
            name = line.partition("=")[0]
            assert name in known or name.startswith("AWS_"), name


def test_docker_compose_reads_the_file_as_it_is_meant(tmp_path: Path) -> None:
    """Run as it is by test_compose; here is what it comes to, with the example's environment."""
    shutil.copy(DEPLOY / "compose.yaml", tmp_path)
    shutil.copy(DEPLOY / "codehub.env.example", tmp_path / "codehub.env")
    program = Path(sys.executable).with_name("docker-compose")
    read = subprocess.run(
        [program, "-f", tmp_path / "compose.yaml", "config", "--format", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEHUB_HOMES_HOST_DIR": "/srv/homes"},
    )
    assert read.returncode == 0, read.stderr
    services = json.loads(read.stdout)["services"]
    assert services.keys() == {"migrate", *PARTS}
    known = {field.alias for field in Settings.model_fields.values()}
    for part in PARTS:
        service = services[part]
        assert service["command"] == ["serve", part]
        assert service["network_mode"] == "host", "they listen on, and speak to, the same loopback"
        assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["environment"]["CODEHUB_HOMES_HOST_DIR"] == "/srv/homes"
        assert {name for name in service["environment"] if not name.startswith("AWS_")} <= known
        sockets = service["environment"]["CODEHUB_SOCKETS_DIR"]
        seen = {mount["target"]: mount["source"] for mount in service["volumes"]}
        assert seen[sockets] == sockets, "the same path as the engine's"
    mounts = {mount["target"]: mount["source"] for mount in services["coordinator"]["volumes"]}
    assert mounts == {
        "/var/run/docker.sock": "/var/run/docker.sock",
        "/var/lib/codehub/homes": "/srv/homes",
        sockets: sockets,
    }
    # Sockets belong to the coordinator's group, which is the one that API and proxy have.
    assert services["coordinator"]["user"] == "0:10001"
    assert "--uid 10001" in (DEPLOY.parent / "Dockerfile").read_text(encoding="utf-8")


def test_what_the_dockerfile_leaves_out_was_put_in_and_is_not_missed() -> None:
    """The image itself is built and run by test_compose; here is what would break it: a name, or an import."""
    recipe = (DEPLOY.parent / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    (words,) = re.findall(r"pip uninstall --yes --quiet (.+)", recipe)
    left_out = set(words.split()) - {"pip"}
    locked = re.findall(r"^([\w.-]+)==", (DEPLOY.parent / "requirements/run.txt").read_text(encoding="utf-8"), re.M)
    assert left_out <= {canonicalize_name(name) for name in locked}
    missing = [name for name, of in packages_distributions().items() if left_out & {*map(canonicalize_name, of)}]
    assert missing
    program = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n" + "".join(
        f"import codehub.cli.{name}\n" for name in ("main", "serve", "migrate", "doctor", "ws", "admin", "login")
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
