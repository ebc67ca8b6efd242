"""Planted bugs in archives and uploads (docs/security.md)."""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.catalog import Mutant

_TESTS = "packages/codehub/tests"
_TARBALL = (f"{_TESTS}/backends/test_tarball.py",)
_UPLOADS = (f"{_TESTS}/unit/workspaced/test_hostile_tars.py",)
_GUARDS = (f"{_TESTS}/unit/test_control_guards.py",)


ARCHIVES: Final = (
    Mutant(
        "16: any depth is archived",
        "adapters/tarball/pack.py",
        "if depth <= MAX_DEPTH and len(path) <= MAX_PATH:",
        "if len(path) <= MAX_PATH:",
        _TARBALL,
    ),
    Mutant(
        "16: any path is archived",
        "adapters/tarball/pack.py",
        "if depth <= MAX_DEPTH and len(path) <= MAX_PATH:",
        "if depth <= MAX_DEPTH:",
        _TARBALL,
    ),
    Mutant(
        "16: an archive is not read back through the parser",
        "adapters/objectstore/transfer.py",
        "            for _ in TarStream(chunks):\n                job.check()\n",
        "            for _ in chunks:\n                job.check()\n",
        (f"{_TESTS}/backends/test_local_dir.py",),
    ),
    Mutant(
        "16: set-uid bits are kept",
        "adapters/tarball/unpack.py",
        "            mode &= ~(stat.S_ISUID | stat.S_ISGID)\n",
        "            pass\n",
        _TARBALL,
    ),
    Mutant(
        "17: the archives of an older version stay readable",
        "cli/stack/datadir.py",
        '        (path / "archives").chmod(0o700)  # created by a version that let others read it\n',
        "        pass\n",
        (f"{_TESTS}/unit/test_data_dir_modes.py",),
    ),
    Mutant(
        "tar: a hard link may go through a link",
        "workspaced/tars.py",
        "if _through_link(staging, member.linkname) or os.path.islink(target) or not os.path.isfile(target):",
        "if not os.path.exists(target):",
        _UPLOADS,
    ),
    Mutant(
        "tar: a link may lead back and out",
        "workspaced/tars.py",
        "            below = True\n",
        "            depth += 1\n",
        _UPLOADS,
    ),
    Mutant(
        "16: an archive that was replaced in the store is restored",
        "adapters/objectstore/transfer.py",
        "if sha256 is not None and meta.sha256 != sha256:",
        "if False:",
        (f"{_TESTS}/backends/test_local_dir.py",),
    ),
    Mutant(
        "16: the digest in the database does not decide",
        "control/act.py",
        "sha256 = None if self._digest_of is None else await self._digest_of(task.workspace.id, key)",
        "sha256 = None",
        _GUARDS,
    ),
)
