"""The TLS context for a cluster: its certificate authority and the client's certificate."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from codehub.adapters.kubernetes.kubeconfig import ClusterAccess
from codehub.domain.errors import Invalid


def tls_context(access: ClusterAccess, given: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
    """Return the TLS context for this cluster. `given` is a certificate from an exec plugin."""
    context = ssl.create_default_context()
    try:
        if access.authority is not None:
            context = ssl.create_default_context(cadata=access.authority.read().decode("ascii"))
        if access.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        pair = given
        if pair is None and access.client_certificate is not None and access.client_key is not None:
            pair = access.client_certificate.read(), access.client_key.read()
        if pair is not None:
            with _private_file(pair[0] + b"\n" + pair[1]) as file:
                context.load_cert_chain(file)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        raise Invalid(
            f"the certificates of {access.described_as or access.server} cannot be used: {error}"
        ) from error
    return context


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a private file with this content, because OpenSSL reads keys only from files.

    Uses an in-memory file if the system supports it, so that no key reaches a disk.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("codehub-client-certificate", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "client.pem"
        path.touch(0o600)
        path.write_bytes(content)
        yield str(path)
