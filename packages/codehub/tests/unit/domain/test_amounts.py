"""Durations and sizes as people write them, and as they are shown again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import Invalid
from codehub.domain.units import format_amount, parse_bytes, parse_duration, shown_bytes, shown_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("4h", timedelta(hours=4)),
        ("7d", timedelta(days=7)),
        ("1.5h", timedelta(minutes=90)),
        (".5m", timedelta(seconds=30)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["1.5.5h", "1,5h", "H", "h4", "4 h", "+4h", "٤h", "9" * 30 + "d"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(Invalid):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=1), "1m"),
        (timedelta(minutes=90), "90m"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=1), "1d"),
        (timedelta(seconds=0.5), "0.5s"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_needs_no_fraction(duration: timedelta, text: str) -> None:
    assert shown_duration(duration) == text


@given(st.integers(0, 10**5), st.sampled_from("smhd"))
def test_a_duration_that_is_shown_can_be_written_again(number: int, unit: str) -> None:
    duration = parse_duration(f"{number}{unit}")
    assert parse_duration(shown_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1K", 1024), ("512M", 512 * 1024**2), ("4G", 4 * 1024**3), ("1T", 1024**4), ("2g", 2 * 1024**3), ("0M", 0)],
)
def test_sizes_use_the_units_of_memory(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected
    assert parse_bytes("9" * 18 + "K") == (10**18 - 1) * 1024


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 bytes"),
        (1000, "1000 bytes"),
        (1 << 10, "1K"),
        (1536, "1536 bytes"),
        (1536 << 10, "1536K"),
        (1 << 20, "1M"),
        (3 << 30, "3G"),
        (1 << 40, "1T"),
        (1 << 50, "1024T"),
    ],
)
def test_a_size_is_shown_exactly_in_the_largest_unit(amount: int, text: str) -> None:
    assert shown_bytes(amount) == text


@given(st.integers(1, 10**6), st.sampled_from("KMGT"))
def test_a_size_that_is_shown_can_be_written_again(number: int, unit: str) -> None:
    amount = parse_bytes(f"{number}{unit}")
    assert parse_bytes(shown_bytes(amount)) == amount


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, "bytes", "0 bytes"),
        (999, "bytes", "999 bytes"),
        (1000, "bytes", "1.0 kB"),
        (1500, "", "1.5 kB"),
        (99_900, "bytes", "99.9 kB"),
        (100_000, "bytes", "100 kB"),
        (1_000_000, "bytes", "1.0 MB"),
        (2_500_000_000, "bytes", "2.5 GB"),
        (10**12, "bytes", "1.0 TB"),
        (10**15, "bytes", "1000 TB"),
        (42, "files", "42 files"),
        (5000, "layers", "5000 layers"),
    ],
)
def test_an_amount_for_people_has_about_three_digits(count: int, unit: str, text: str) -> None:
    assert format_amount(count, unit) == text
