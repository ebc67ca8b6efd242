"""Random edits of a tree, as made by people, editors, builds and git."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from testing.sari.trees import write_source


class Editor:
    """Changes a tree at random, from a seed."""

    def __init__(self, rng: random.Random, root: Path) -> None:
        self._rng = rng
        self._root = root
        self._made = 0

    def edit(self) -> None:
        """Make one random change."""
        rng = self._rng
        files = self._some_files()
        path = rng.choice(files) if files else self._root / "first.py"
        self._made += 1
        match rng.randrange(14):
            case 0 | 1 | 2:
                write_source(rng, path, rng.randrange(10**6))
            case 3:
                with open(path, "ab") as out:
                    out.write(b"\nappended needle_%d\n" % self._made)
            case 4:
                temporary = path.with_name(f".{path.name}.swp")
                write_source(rng, temporary, self._made)
                os.replace(temporary, path)
            case 5 | 6:
                write_source(rng, path.parent / f"made_{self._made}.py", self._made)
            case 7:
                path.unlink(missing_ok=True)
            case 8:
                if path.exists():
                    path.rename(path.with_name(f"moved_{self._made}.py"))
            case 9:
                write_source(rng, self._root / f"new/d{self._made}/e/f.py", self._made)
            case 10:
                self._move_folder()
            case 11:
                self._same_size(path)
            case 12:
                (path.parent / f"out_{self._made}.log").write_text("needle in an ignored log\n")
            case 13:
                path.write_bytes(b"needle\n" * rng.randrange(5) + rng.choice([b"", b"\0", b"\xff\xfe"]) + b"tail\n")

    def _some_files(self) -> list[Path]:
        """Return files of one randomly chosen folder, which is cheap on a large tree."""
        here = str(self._root)
        while True:
            entries = sorted(
                (e for e in os.scandir(here) if e.name not in (".git", ".gitignore")), key=lambda e: e.name
            )
            files = [e.path for e in entries if e.is_file(follow_symlinks=False)]
            folders = [e.path for e in entries if e.is_dir(follow_symlinks=False)]
            if not folders or (files and self._rng.random() < 0.3):
                return [Path(file) for file in files]
            here = self._rng.choice(folders)

    def _move_folder(self) -> None:
        files = self._some_files()
        if files and files[0].parent != self._root:
            folder = files[0].parent
            target = folder.with_name(f"folder_{self._made}")
            folder.rename(target)
            if self._rng.random() < 0.5:
                shutil.copytree(target, folder)
            elif self._rng.random() < 0.3:
                shutil.rmtree(target)

    def _same_size(self, path: Path) -> None:
        """Write new content with the same size and modification time: only the inode's change time differs."""
        if not path.is_file():
            return
        stat = path.stat()
        data = bytearray(path.read_bytes())
        if len(data) > 12:
            data[:12] = b"%-12d" % self._made
            path.write_bytes(bytes(data))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def ignore_rules(self) -> None:
        """Change the ignore rules."""
        rules = ["*.log", "/new/", "moved_*", "made_1*", "!made_12*", "m3/", "src/p1/**", "*.tmp"]
        self._rng.shuffle(rules)
        target = self._root / self._rng.choice([".gitignore", ".ignore", "src/.gitignore"])
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(rules[: self._rng.randrange(1, 5)]) + "\n")
