"""The block of `codehub config-ssh`: its ciphers, its place, and everything around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.cli.ssh_files import block, change_config, has_aes, with_block


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are in the user's own folder of CodeHub."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


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


BLOCK = block(server=None, fd_passing=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Host other\n  User me\n",
        "Host other\n  User me",
        "Host other\r\n  User me\r\n",
        "\n\nForwardX11 yes\nInclude more\n",
        "# caf\udce9\nHost other\n",
    ],
)
def test_a_configuration_is_the_same_after_the_block_came_and_went(text: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_bytes(text.encode("utf-8", "surrogateescape"))
    change_config(config, BLOCK)
    once = config.read_bytes()
    assert once.startswith(BLOCK.encode()), "the first value wins in this file"
    change_config(config, BLOCK)
    assert config.read_bytes() == once
    change_config(config, None)
    assert config.read_bytes() == text.encode("utf-8", "surrogateescape")
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_a_block_stays_where_it_is_and_one_at_the_end_is_removed_exactly() -> None:
    older = BLOCK.replace("Host *\n", "").replace("coder", "someone")
    text = f"Host a\n  User me\n\n{older}"
    assert with_block(text, BLOCK) == f"Host a\n  User me\n\n{BLOCK}"
    assert with_block(text, None) == "Host a\n  User me\n"
    assert with_block(text.replace("\n", "\r\n"), None) == "Host a\r\n  User me\r\n\r\n"


def test_a_block_without_its_end_takes_nothing_of_the_users_with_it() -> None:
    torn = "\n".join(BLOCK.splitlines()[:3]) + "\nHost mine\n  User me\n"
    once = with_block(torn, BLOCK)
    assert with_block(once, BLOCK) == once
    assert with_block(once, None) == torn
    assert "Host mine" in with_block(f"{torn}\n{BLOCK}", None)
