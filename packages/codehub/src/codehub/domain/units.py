"""Parses and formats durations and byte sizes: `30s`, `10m`, `4h`, `7d`; `512M`, `4G`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from codehub.domain.errors import Invalid

SECONDS: Mapping[str, int] = MappingProxyType({"s": 1, "m": 60, "h": 3600, "d": 86_400})
BYTES: Mapping[str, int] = MappingProxyType({"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40})


def parse_duration(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in SECONDS or not number.isascii() or not number.replace(".", "", 1).isdigit():
        raise Invalid(f"{text!r} is not a duration: write 30s, 10m, 4h or 7d")
    try:
        return timedelta(seconds=float(number) * SECONDS[unit])
    except OverflowError as error:
        raise Invalid(f"{text!r} is too long") from error


def parse_bytes(text: str) -> int:
    number, unit = text[:-1], text[-1:].upper()
    # 18 digits of terabytes are far beyond any disk, and limit the cost of a hostile number.
    if unit not in BYTES or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise Invalid(f"{text!r} is not an amount of bytes: write 512M or 4G")
    return int(number) * BYTES[unit]


def shown_bytes(amount: int) -> str:
    """Format for `parse_bytes`, in the largest unit that represents it exactly."""
    for unit, size in sorted(BYTES.items(), key=lambda one: -one[1]):
        if amount >= size and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount} bytes"


def shown_duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for unit, size in sorted(SECONDS.items(), key=lambda one: -one[1]):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
