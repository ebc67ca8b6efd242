"""Which devcontainer.json of a repository applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from codehub.workspaced import devcontainer
from codehub.workspaced.link import Link


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    made = Link(lambda message: None, list)

    async def ask(kind: str, request: dict[str, object]) -> dict[str, object]:
        return {"text": request["text"], "ignored": [["image", "needs a container"]]}

    monkeypatch.setattr(made, "ask", ask)
    return made


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


async def test_the_first_by_name_applies_and_the_others_are_named(link: Link, tmp_path: Path) -> None:
    put(
        tmp_path,
        ".devcontainer/web/devcontainer.json",
        ".devcontainer/api/devcontainer.json",
        ".devcontainer/notes.md",
    )
    found = await devcontainer.load(link, str(tmp_path), "")
    assert found["text"] == ".devcontainer/api/devcontainer.json"
    assert found["ignored"] == [
        ["image", "needs a container"],
        [
            ".devcontainer/web/devcontainer.json",
            "is not used: .devcontainer/api/devcontainer.json comes first by name",
        ],
    ]


async def test_a_file_in_a_standard_place_applies_alone(link: Link, tmp_path: Path) -> None:
    put(tmp_path, ".devcontainer/api/devcontainer.json", ".devcontainer.json")
    found = await devcontainer.load(link, str(tmp_path), "")
    assert (found["text"], found["ignored"]) == (".devcontainer.json", [["image", "needs a container"]])
    assert await devcontainer.load(link, str(tmp_path), "nowhere") == {}
