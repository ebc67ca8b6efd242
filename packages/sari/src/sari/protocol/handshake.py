"""The handshake in which a client and a daemon prove that both hold the owner's token, without sending it. Pure.

Each side sends a random nonce and answers with an HMAC over both nonces. The HMAC includes the port, so a program that
listens on a daemon's old port cannot relay the messages to the daemon (man in the middle).
"""

from __future__ import annotations

from _operator import _compare_digest as compare_digest

# Not `hmac` and `hashlib`: they load OpenSSL, which takes a third of the time in which a client connects.
try:
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

_LONGEST_NONCE = 200
_BLOCK = 64


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
    return isinstance(given, str) and compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _proof(token: str, role: str, client_nonce: str, daemon_nonce: str, port: int) -> str:
    text = f"sari {role} {client_nonce} {daemon_nonce} {port}"
    return _hmac_sha256(token.encode(), text.encode())


def _hmac_sha256(key: bytes, message: bytes) -> str:
    """Return what `hmac.new(key, message, "sha256").hexdigest()` does (RFC 2104)."""
    block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in block) + message).digest()
    return str(sha256(bytes(byte ^ 0x5C for byte in block) + inner).hexdigest())
