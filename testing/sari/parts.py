"""The real clients, and the predecessor, that sari is tested against: installed once, pinned, under `.parts/clients`.

Each part is built under a file lock and marked when complete, so an interrupted build is repeated. HOME may be empty.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PARTS = Path(__file__).resolve().parents[2] / ".parts/clients"
# The requirement of each Python part for `uv pip install`.
_PYTHON = {"mcp1": "mcp==1.30.0", "mcp2": "mcp==2.3.0", "sari0": "sari==0.1.26"}
_NODE = {
    "inspector": ["node@24.9.0", "@modelcontextprotocol/inspector@2.12.0"],
    "codex": ["@openai/codex@0.166.0"],
    # These two run without their install scripts, which would build or copy unneeded files.
    "gemini": ["--ignore-scripts", "--omit=optional", "@google/gemini-cli@0.61.0"],
    "claude": ["--ignore-scripts", "@anthropic-ai/claude-code@2.1.325"],
    "language-servers": [
        "--ignore-scripts", "--omit=optional", "pyright@1.1.414", "typescript-language-server@5.3.0", "typescript@5.9.3",
    ],
}  # fmt: skip
# The packages of a part that is pinned by hash.
_INTEGRITY = {
    "language-servers": {
        "pyright": "sha512-FPZZb51jepDX4eP7TEYDeNFtmE3WgwkkEcJpvH3/QmUSsj0EAy3LXu+xB4T/FWDejtsXlCfFr/rbWFjwuwuXww==",
        "typescript": "sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw==",
        "typescript-language-server": (
            "sha512-5puofxZHgFdAYtfNpmwCAvgtaYgg8wrUnH30m7Ze3QuguId5RNRadKASpOpyDxTyUdAF51FjhTdjntLw/EuWcQ=="
        ),
    }
}


def python_part(name: str) -> Path:
    """Return the environment of a Python part."""

    def build(place: Path) -> None:
        uv = str(Path(sys.executable).with_name("uv"))
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
        _run(uv, "pip", "install", "--quiet", "--python", str(place / "bin/python"), _PYTHON[name])

    return _built(name, _PYTHON[name], build)


def node_part(name: str) -> Path:
    """Return the folder of a Node part."""

    def build(place: Path) -> None:
        place.mkdir(parents=True)
        words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(place)]
        _run(*words, *_NODE[name], home=place / ".home")
        if name in _INTEGRITY:
            _check_integrity(place, _INTEGRITY[name])

    return _built(name, " ".join(_NODE[name]), build)


def _check_integrity(place: Path, pinned: dict[str, str]) -> None:
    """Check that the hashes that npm verified and recorded are ours."""
    installed = json.loads((place / "node_modules/.package-lock.json").read_bytes())["packages"]
    found = {name.removeprefix("node_modules/"): entry["integrity"] for name, entry in installed.items()}
    assert found == pinned, f"npm installed other packages than those pinned: {found}"


def _built(name: str, wanted: str, build: Callable[[Path], None]) -> Path:
    place = PARTS / name
    stamp = PARTS / f"{name}.ready"
    PARTS.mkdir(parents=True, exist_ok=True)
    with open(PARTS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            build(place)
            stamp.write_text(wanted)
    return place


def _run(*words: str, home: Path | None = None) -> None:
    environ = {**os.environ, "HOME": str(home)} if home is not None else dict(os.environ)
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
