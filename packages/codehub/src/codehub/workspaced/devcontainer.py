"""Finds and applies the devcontainer.json of a clone. CodeHub interprets it."""

from __future__ import annotations

import contextlib
import json
import os

from .link import Link, LinkError

_LONGEST = 128 << 10
_SETTINGS = os.path.join(".local", "share", "code-server", "Machine", "settings.json")


def find(folder: str) -> str | None:
    """Return its path: the standard places in order, then one folder below `.devcontainer`, by name."""
    return next(iter(candidates(folder)), None)


def candidates(folder: str) -> list[str]:
    """Return the path of the file that applies, and then those of others that could be meant instead."""
    for name in (".devcontainer/devcontainer.json", ".devcontainer.json"):
        if os.path.isfile(os.path.join(folder, name)):
            return [name]
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(os.path.join(folder, ".devcontainer")))
    paths = [os.path.join(".devcontainer", name, "devcontainer.json") for name in names]
    return [path for path in paths if os.path.isfile(os.path.join(folder, path))]


def place_of(home: str, folder: str, clone: str) -> str:
    """Return the folder whose file applies: the one that the IDE opens, or else the whole clone."""
    return folder if find(os.path.join(home, folder)) is not None else clone


async def load(link: Link, home: str, folder: str) -> dict[str, object]:
    """Return the file's requests as CodeHub interprets them: env, commands, extensions, settings, ports, ignored, error.

    `image` describes what becomes of its image; `request` is sent again to have it prepared.
    """
    place = os.path.join(home, folder)
    name, *others = candidates(place) or [""]
    if not name:
        return {}
    try:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        return {"error": f"{name} cannot be read: {error}"}
    if len(text) > _LONGEST:
        return {"error": f"{name} is larger than 128 KiB"}
    request: dict[str, object] = {"text": text, "folder": place, "home": home, "file": name, "clone": folder}
    try:
        found = await link.ask("devcontainer", request)
    except LinkError as error:
        return {"error": f"{name}: {error}"}
    found["request"] = request
    ignored = found.get("ignored")
    unused = [[other, f"is not used: {name} comes first by name"] for other in others]
    found["ignored"] = [*(ignored if isinstance(ignored, list) else []), *unused]
    if found.get("error"):
        found["error"] = f"{name}: {found['error']}"
    return found


def write_settings(home: str, settings: object) -> list[list[str]]:
    """Add settings to code-server's machine settings.

    Existing ones win, because users chose them. Return what failed, as text.
    """
    if not isinstance(settings, dict) or not settings:
        return []
    path = os.path.join(home, _SETTINGS)
    before: object = {}
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return [["settings", f"~/{_SETTINGS} has comments or errors, so nothing was added to it"]]
    if not isinstance(before, dict):
        return [["settings", f"~/{_SETTINGS} does not hold an object"]]
    merged = {**settings, **before}
    if merged != before:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(merged, file, indent=4)
        os.rename(path + ".new", path)
    return []
