"""A network namespace with an address and certificates of its own, for servers that tests reach as other machines."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_numbers = itertools.count()


@contextlib.contextmanager
def namespace_with_address() -> Iterator[tuple[str, str]]:
    """Yield (name, the address inside). Removing the namespace removes the pair."""
    number = next(_numbers)
    name = f"t{os.getpid()}x{number}"
    # 10.213.0.0/16 in blocks of four addresses, chosen by pid, so that other test runs on this machine use different ones.
    piece = (os.getpid() * 7 + number) % 16_384
    base = [10, 213, piece >> 6, (piece & 63) * 4]
    outside, inside = (".".join(map(str, [*base[:3], base[3] + n])) for n in (1, 2))

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", f"v{piece}a", "type", "veth", "peer", "name", f"v{piece}b", "netns", name)
        run("ip", "address", "add", f"{outside}/30", "dev", f"v{piece}a")
        run("ip", "link", "set", f"v{piece}a", "up")
        inner = ["ip", "netns", "exec", name, "ip"]
        run(*inner, "address", "add", f"{inside}/30", "dev", f"v{piece}b")
        run(*inner, "link", "set", f"v{piece}b", "up")
        run(*inner, "link", "set", "lo", "up")
        yield name, inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def make_certificates(place: Path, address: str) -> None:
    """Write `cert.pem` and `key.pem` for an address, and `ca.pem` of their authority."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=place)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test authority")
    openssl("req", *curve[:4], "-nodes", "-keyout", "key.pem", "-out", "request.pem", "-subj", f"/CN={address}")
    (place / "names").write_text(f"subjectAltName=IP:{address}\n")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names"]
    openssl("x509", "-req", "-in", "request.pem", *signing, "-out", "cert.pem")
