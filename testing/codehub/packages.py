"""Small packages of Python and Node, as an index would send them: tests need no network to install one."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile


def wheel(name: str, program: str) -> bytes:
    """A pure wheel with one module and one program: what an index would send."""
    content = io.BytesIO()
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}.py", f"def main():\n    print('{name} works')\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{program} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return content.getvalue()


def npm_package(name: str) -> bytes:
    content = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": name, "version": "1.0.0", "bin": {name: "cli.js"}}),
        "package/cli.js": f"#!/usr/bin/env node\nconsole.log('{name} works')\n",
    }
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()
