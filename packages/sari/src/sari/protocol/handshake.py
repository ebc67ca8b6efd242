"""How a client and a daemon prove to each other that both hold the owner's token, without sending it. Pure.

Each sends a random nonce; each answers with an HMAC over both. The port is part of it: another program that listens on
a daemon's old port cannot pass the messages on to the daemon and sit in between.
"""

from __future__ import annotations

import hashlib
import hmac

_LONGEST_NONCE = 200


def client_proof(token: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    """What only a client with the token can answer."""
    return _proof(token, "client", client_nonce, daemon_nonce, port)


def daemon_proof(token: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    """What only a daemon with the token can answer."""
    return _proof(token, "daemon", client_nonce, daemon_nonce, port)


def is_nonce(value: object) -> bool:
    """Whether a peer sent something that can be a nonce."""
    return isinstance(value, str) and 16 <= len(value) <= _LONGEST_NONCE and value.isascii() and value.isalnum()


def is_proof(given: object, expected: str) -> bool:
    """Whether a peer's proof is the expected one; takes the same time either way."""
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _proof(token: str, role: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    text = f"sari {role} {client_nonce} {daemon_nonce} {port}"
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
