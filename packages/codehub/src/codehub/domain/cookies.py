"""Reads all cookies of one name.

A page on another host of the same site, or another program on the same host, can add cookies of our names. A browser does
not say who set a cookie, so every value is tried, and a forged one neither signs anybody in nor keeps anybody out.
"""

from __future__ import annotations

from typing import Final

# Chromium and Firefox keep at most 180 cookies of a site.
MAX_OF_ONE_NAME: Final = 180


def cookie_values(header: bytes, wanted: bytes) -> list[bytes]:
    """Return the values of a cookie, in the browser's order."""
    found: list[bytes] = []
    for pair in header.split(b";"):
        name, equals, value = pair.strip(b" \t").partition(b"=")
        if equals and name.rstrip(b" \t") == wanted:
            found.append(value.strip(b' \t"'))
    return found[:MAX_OF_ONE_NAME]
