"""The text form of the keys that encrypt users' secrets. Pure."""

from __future__ import annotations

import base64
import binascii

from codehub.domain.errors import Invalid

KEY_BYTES = 32


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Parse CODEHUB_SECRETS_KEY: 32 bytes in base64, or several such keys separated by commas, newest first."""
    keys = []
    for word in text.split(","):
        try:
            key = base64.b64decode(word.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise Invalid("expected 32 bytes in base64 (openssl rand -base64 32)")
        keys.append(key)
    return tuple(keys)
