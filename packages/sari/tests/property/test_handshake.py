"""The handshake's own HMAC equals the standard library's."""

import hashlib
import hmac

from hypothesis import example, given
from hypothesis import strategies as st

from sari.protocol.handshake import client_proof


@given(st.text(max_size=200), st.integers(1, 65_535))
@example("k" * 64, 1)
@example("k" * 65, 1)
def test_a_proof_is_an_hmac_of_the_nonces_and_the_port(token: str, port: int) -> None:
    key, text = token.encode("utf-8", "replace"), f"sari client mine theirs {port}"
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    assert client_proof(key.decode(), "mine", "theirs", port) == expected
