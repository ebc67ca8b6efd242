"""Settings: from the environment over a file, refused with the variable's name, its value and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.domain.errors import Invalid
from codehub.settings import NAMES, Settings, load_settings


def test_the_defaults_are_the_designs() -> None:
    settings = load_settings({})
    assert settings.api_bind == "127.0.0.1:8000"
    assert settings.public_url == "http://127.0.0.1:8000"
    assert settings.workspace_url == "http://localhost:8001"
    assert (settings.ttl_standby_s, settings.ttl_archive_s, settings.flush_interval_s) == (10_800, 86_400, 30)
    assert (settings.max_running_per_user, settings.max_running_global) == (2, 100)
    assert (settings.lock_id, settings.max_parallel, settings.gc_interval_s) == (12345, 32, 14_400)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CODEHUB_API_BIND", "8000", "HOST:PORT"),
        ("CODEHUB_API_BIND", "127.0.0.1:99999", "HOST:PORT"),
        ("CODEHUB_PUBLIC_BASE_URL", "codehub.example.org", "https://"),
        ("CODEHUB_PUBLIC_BASE_URL", "https://codehub.example.org/path", "without a path"),
        ("CODEHUB_REDIS_URL", "localhost:6379", "redis://"),
        ("CODEHUB_ARCHIVE_URL", "ftp://x", "s3://"),
        ("CODEHUB_WORKSPACE_HOST", "ws.example.org", r"\*\."),
        ("CODEHUB_RUNTIME", "podman", "docker"),
        ("MAX_RETRY", "many", "integer"),
        ("TTL_ARCHIVE_SECONDS", "-1", "greater than 0"),
        ("CODEHUB_INSTANCE_MEMORY", "lots", "integer"),
    ],
)
def test_a_wrong_value_is_refused_naming_variable_value_and_expectation(name: str, value: str, expected: str) -> None:
    with pytest.raises(Invalid, match=expected) as refused:
        load_settings({name: value})
    assert name in str(refused.value)
    assert repr(value) in str(refused.value)


def test_a_wrong_database_url_is_refused_without_showing_its_password() -> None:
    with pytest.raises(Invalid, match="CODEHUB_DATABASE_URL") as refused:
        load_settings({"CODEHUB_DATABASE_URL": "mysql://user:hunter2@db/x"})
    assert "hunter2" not in str(refused.value)


def test_a_malformed_key_is_refused_without_showing_it() -> None:
    with pytest.raises(Invalid, match="CODEHUB_SECRETS_KEY=…: expected 32 bytes in base64"):
        load_settings({"CODEHUB_SECRETS_KEY": "mistyped"})
    assert load_settings({"CODEHUB_SECRETS_KEY": f"{'A' * 43}=, {'B' * 42}A="}).secrets_key


def test_a_standby_ttl_not_above_the_flush_interval_is_refused() -> None:
    with pytest.raises(Invalid, match=r"TTL_STANDBY_SECONDS.*ACTIVITY_FLUSH_INTERVAL"):
        load_settings({"TTL_STANDBY_SECONDS": "30", "ACTIVITY_FLUSH_INTERVAL": "30"})


def test_the_environment_goes_over_the_file_and_durations_may_have_units(tmp_path: Path) -> None:
    file = tmp_path / "codehub.toml"
    file.write_text(
        'TTL_STANDBY_SECONDS = 900\nCOORDINATOR_GC_INTERVAL = "2h"\nCODEHUB_ALLOWED_IMAGES = ["a/*", "b:1"]\n'
    )
    settings = load_settings({"CODEHUB_CONFIG_FILE": str(file), "TTL_STANDBY_SECONDS": "20m"})
    assert settings.ttl_standby_s == 1200
    assert settings.gc_interval_s == 7200
    assert settings.allowed_images == ("a/*", "b:1")


@pytest.mark.parametrize(
    ("content", "complaint"), [("CODEHUB_API_BINDD = 1", "CODEHUB_API_BINDD"), ("not toml", "not a TOML file")]
)
def test_a_file_with_an_unknown_name_or_no_toml_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "codehub.toml"
    file.write_text(content)
    with pytest.raises(Invalid, match=complaint):
        load_settings({"CODEHUB_CONFIG_FILE": str(file)})


def test_an_empty_variable_is_an_unset_one() -> None:
    assert load_settings({"CODEHUB_API_BIND": ""}).api_bind == "127.0.0.1:8000"


def test_every_setting_says_what_it_means() -> None:
    assert all(field.description for field in Settings.model_fields.values())
    assert len(NAMES) == len(Settings.model_fields)
