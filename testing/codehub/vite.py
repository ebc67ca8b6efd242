"""Vite for tests of ports: installed once per checkout into `.parts/vite`, as a tar to unpack in a home."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from codehub.adapters.ide.npm import only_one

VERSION: Final = "7.3.8"
INTEGRITY: Final = "sha512-3tTi78MAKhVk9h+YZVXMQ8POmneJuE97QUPAWtJghHzhH7BAyiqQOC2KZh1DWOsu/USB2cRXhznPByaabvYXfw=="
_DIR = Path(__file__).resolve().parents[2] / ".parts/vite"
_PAGE = '<!doctype html><title>app</title><div id="app">…</div><script type="module" src="./main.js"></script>\n'
_MODULE = """import {text} from "./text.js";
document.getElementById("app").textContent = text;
window.loaded ??= Math.random();
import.meta.hot.accept("./text.js", (next) => (document.getElementById("app").textContent = next.text));
"""


def project() -> bytes:
    """Return a tar of a small Vite application with all its dependencies."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in {
            "index.html": _PAGE,
            "main.js": _MODULE,
            "text.js": 'export const text = "first";\n',
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            tar.addfile(info, io.BytesIO(content.encode()))
        tar.add(_installed() / "node_modules", "node_modules", filter=_plain)
    return out.getvalue()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _installed() -> Path:
    _DIR.mkdir(parents=True, exist_ok=True)
    home = _DIR / VERSION
    with only_one(_DIR / ".lock"):
        if not (home / "done").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            (home / "package.json").write_text('{"private": true}\n')
            flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run(["npm", "install", "--save-exact", f"vite@{VERSION}", *flags], cwd=home, check=True)
            recorded = json.loads((home / "node_modules/.package-lock.json").read_text())["packages"]
            assert recorded["node_modules/vite"]["integrity"] == INTEGRITY, "not the Vite that is pinned"
            (home / "done").touch()
    return home
