"""A sari whose ripgrep is held back, so that a search or the first listing takes as long as a test needs.

Everything else is real: a separate environment that sees this one's packages, in which `rg` is a few lines of shell in
front of the real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from sari.index import ripgrep


@dataclass(frozen=True, slots=True)
class HeldRipgrep:
    """Holds runs of ripgrep whose arguments contain `word` until it is released. `waiting` lists those."""

    command: str
    folder: Path

    @property
    def waiting(self) -> list[int]:
        """Return the waiting processes."""
        return [int(path.name) for path in self.folder.glob("[0-9]*") if os.path.isdir(f"/proc/{path.name}")]

    def release(self) -> None:
        (self.folder / "released").touch()


def held_sari(folder: Path, word: str) -> HeldRipgrep:
    """Create such a sari in `folder`."""
    place, held = folder / "environment", folder / "held"
    held.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([str(python), "-c", script], check=True, capture_output=True, text=True)
    # `addsitedir` also reads the .pth files beside the packages: sari itself is linked into this environment.
    (Path(done.stdout.strip()) / "here.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    _script(
        place / "bin" / "rg",
        f'#!/bin/sh\ncase "$*" in *{word}*)\n    touch "{held}/$$"\n'
        f'    while [ ! -e "{held}/released" ]; do sleep 0.05; done ;;\nesac\nexec "{ripgrep.PROGRAM}" "$@"\n',
    )
    command = place / "bin" / "sari"
    _script(command, f"#!{python}\nimport sys\nfrom sari.cli.main import main\nsys.exit(main())\n")
    return HeldRipgrep(str(command), held)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
