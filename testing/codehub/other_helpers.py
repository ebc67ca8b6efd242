"""Other versions of `workspaced` than ours, and how a CodeHub starts workspaces with one of them.

The earlier one is kept beside this file. Written once with
`git archive 33ca9a10:packages/codehub/src/codehub/workspaced | xz -9e`. It does not know `POST /setup/skip`.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Final

from codehub.adapters.workspaced_launch import FOLDER

ARCHIVE: Final = Path(__file__).parent / "releases/workspaced.tar.xz"
# What git calls the directory: `git rev-parse 33ca9a10:packages/codehub/src/codehub/workspaced`.
TREE: Final = "3d99aaac97f2cf0f63d2d5d6ec28bcbfbb67ee18"

# Read by Python when it starts: CodeHub is ours in everything but the folder that it gives to workspaces.
_GIVE = "import codehub.workspaced\n\ncodehub.workspaced.__file__ = {file!r}\n"

_MORE_FEATURES: Final = """
VERSION = "0.3.0"
FEATURES = (*FEATURES, "teleports")
"""
# In every answer, at every depth, and in every event.
_MORE_FIELDS: Final = """
def _with_more(value):
    if isinstance(value, dict):
        return {"unheard_of": {"by": ["ours"]}, **{key: _with_more(one) for key, one in value.items()}}
    return [_with_more(one) for one in value] if isinstance(value, list) else value
"""
_MORE_IN_ANSWERS: Final = """
_as_json = as_json

def as_json(value, status=200):
    return _as_json(_with_more(value), status)
"""
_MORE_EVENTS: Final = """
class Link(Link):
    async def _send(self, message):
        await super()._send({"event": "unheard-of", "weather": "fine"})
        await super()._send(_with_more(message))
"""


def unpack_earlier_helper(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")


def make_newer_helper(folder: Path) -> None:
    """Make ours one minor version newer: with a feature, fields in all answers and events that are not known to ours."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, added in (
        ("__init__.py", _MORE_FEATURES),
        ("http1.py", _MORE_FIELDS + _MORE_IN_ANSWERS),
        ("link.py", _MORE_FIELDS + _MORE_EVENTS),
    ):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(added)


def give_helper(folder: Path, place: Path) -> str:
    """Return a directory for PYTHONPATH with which CodeHub starts workspaces with the `workspaced` in this folder."""
    place.mkdir(mode=0o755)
    (place / "sitecustomize.py").write_text(_GIVE.format(file=str(folder / "__init__.py")))
    return str(place)
