"""The choice of ciphers in the block of `codehub config-ssh`."""

from __future__ import annotations

import pytest

from codehub.cli.ssh_files import has_aes


@pytest.mark.parametrize(
    ("cpuinfo", "has"),
    [
        ("processor : 0\nflags\t\t: fpu vme sse4_2 aes xsave avx\n", True),
        ("processor : 0\nFeatures\t: fp asimd evtstrm aes pmull sha1\n", True),
        ("processor : 0\nFeatures\t: fp asimd evtstrm crc32\n", False),
        ("processor : 0\nmodel name : aes\nflags\t\t: fpu vme vaes_x\n", False),
        ("", False),
    ],
)
def test_aes_is_found_in_the_flags_of_a_processor(cpuinfo: str, has: bool) -> None:
    assert has_aes(cpuinfo) is has
