"""The handshake in which a client and a daemon prove that both hold the owner's token, without sending it. Pure.

Each side sends a random nonce and answers with an HMAC over both nonces. The HMAC includes the port, so a program that
listens on a daemon's old port cannot relay the messages to the daemon (man in the middle).
"""

from __future__ import annotations

import hashlib
import hmac

_LONGEST_NONCE = 200


def client_proof(token: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    """Return the proof that only a client with the token can compute."""
    return _proof(token, "client", client_nonce, daemon_nonce, port)


def daemon_proof(token: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    """Return the proof that only a daemon with the token can compute."""
    return _proof(token, "daemon", client_nonce, daemon_nonce, port)


def is_nonce(value: object) -> bool:
    """Whether a value sent by a peer is a valid nonce."""
    return isinstance(value, str) and 16 <= len(value) <= _LONGEST_NONCE and value.isascii() and value.isalnum()


def is_proof(given: object, expected: str) -> bool:
    """Whether a peer's proof is correct. Compares in constant time."""
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _proof(token: str, role: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    text = f"sari {role} {client_nonce} {daemon_nonce} {port}"
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
