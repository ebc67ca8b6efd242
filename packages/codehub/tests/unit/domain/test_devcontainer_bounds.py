"""How much a devcontainer.json may hold: what is exactly as much is read, and one more is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from codehub.domain.devcontainer import DevContainer, parse_devcontainer
from codehub.domain.errors import Invalid


def read(folder: str = "/f", home: str = "/h", **document: object) -> DevContainer:
    return parse_devcontainer(json.dumps(document), containers=True, folder=folder, home=home, workspace_id="ws1")


def _nested(depth: int) -> DevContainer:
    value: object = "x"
    for _ in range(depth - 1):  # the options of the feature are one level
        value = [value]
    return read(features={"./x": {"a": value}})


@pytest.mark.parametrize(
    ("read_so_much", "most", "message"),
    [
        (_nested, 50, "nested too deeply"),
        (lambda size: read(containerEnv={"A": "x" * (size - 1)}), 32 << 10, "at most 32 KiB"),
        (lambda size: read(remoteEnv={"AB": "ä" * (size // 2 - 1) + "x" * (size % 2)}), 32 << 10, "at most 32 KiB"),
        (lambda size: read(folder="/" * size), 4096, "more than 4096 characters"),
        (lambda size: read(home="/" * size), 4096, "more than 4096 characters"),
        (lambda size: read(forwardPorts=list(range(1, size + 1))), 100, "forwardPorts"),
    ],
)
def test_as_much_as_is_allowed_is_read_and_one_more_is_refused(
    read_so_much: Callable[[int], DevContainer], most: int, message: str
) -> None:
    read_so_much(most)
    with pytest.raises(Invalid, match=message):
        read_so_much(most + 1)


def test_variables_expand_to_256_kibibytes_and_no_more() -> None:
    def expanded(size: int) -> DevContainer:
        times, rest = divmod(size, 1024)
        text = "${userHome}" * times + ("${containerWorkspaceFolder}" if rest else "")
        return read(home="/" * 1024, folder="/" * max(rest, 1), features={"./x": {"a": text}})

    options = expanded(256 << 10).features["./x"]
    assert isinstance(options, dict)
    assert len(options["a"]) == 256 << 10
    with pytest.raises(Invalid, match="more than 256 KiB"):
        expanded((256 << 10) + 1)


def test_the_first_100_secrets_are_named() -> None:
    assert len(read(secrets={f"S{n}": {} for n in range(101)}).secrets) == 100
