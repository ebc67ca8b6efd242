"""Which version is newer."""

import itertools

import pytest

from sari.protocol.versions import is_older, version_key


def test_versions_sort_as_people_expect() -> None:
    rising = [
        "dev",
        "0.1.26",
        "2.9",
        "3.0.0.dev1",
        "3.0.0a1",
        "3.0.0b2",
        "3.0.0rc1",
        "3.0.0",
        "3.0.1",
        "3.1",
        "3.10.0",
        "10.0",
    ]
    assert sorted(rising, key=version_key) == rising
    assert all(is_older(one, two) for one, two in itertools.pairwise(rising))


@pytest.mark.parametrize("odd", ["dev", "", "unknown", "x.y", "3.0-dirty", "…"])
def test_what_cannot_be_parsed_is_oldest_and_replaces_nobody(odd: str) -> None:
    assert version_key(odd) == version_key("dev")
    assert is_older(odd, "0.0.1")
    assert not is_older("0.0.1", odd)


def test_spellings_of_one_version_are_equal() -> None:
    assert version_key("3.0") == version_key("3.0.0") == version_key("v3.0.0+local")
