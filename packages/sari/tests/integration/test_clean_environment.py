"""A client's environment can come from a project's configuration: the daemon, which outlives the client and serves other
projects, takes over nothing that names the project's code.
"""

import os
from pathlib import Path

from sari.registry.programs import clean_environment, search_path
from testing.sari.processes import daemons_of
from testing.sari.world import World


def test_pythonpath_of_a_client_reaches_neither_the_daemon_nor_its_workers(world: World) -> None:
    root = world.workspace("project", a__py="def one():\n    return 1\n" * 200)
    mark = world.base / "mark"
    evil = f"import sys\nwith open({str(mark)!r}, 'a') as out:\n    out.write(' '.join(sys.orig_argv) + chr(10))\n"
    (root / "sitecustomize.py").write_text(evil)
    (root / "usercustomize.py").write_text(evil)
    world.environ |= {"PYTHONPATH": str(root), "PYTHONHOME": "", "PATH": f"{root}:.:{world.environ['PATH']}"}
    shim = world.shim(root)
    shim.initialize()
    # A worker parses the file for it.
    assert "one" in str(shim.call("outline", {"path": "a.py"}))
    marked = mark.read_text() if mark.exists() else ""
    assert "sari.daemon" not in marked
    assert "worker" not in marked
    (daemon,) = daemons_of(world.home)
    environ = dict(
        part.partition("=")[::2] for part in Path(f"/proc/{daemon}/environ").read_text().split("\0") if part
    )
    assert not [name for name in environ if name.startswith("PYTHON")]
    folders = environ["PATH"].split(os.pathsep)
    assert str(root) not in folders
    assert "." not in folders


def test_an_environment_keeps_what_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "project/bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "project")
    folders = ["", ".", "bin", "/usr/bin", f"{tmp_path}/project/bin", f"{tmp_path}/link/bin", f"{tmp_path}/project2"]
    given = {
        "PATH": ":".join(folders), "LD_LIBRARY_PATH": ":/opt/lib", "LD_PRELOAD": "./a.so", "PYTHONPATH": ".",
        "HOME": "/home/a", "SARI_DAEMON_PORT": "0", "GIT_DIR": ".",
    }  # fmt: skip
    assert clean_environment(given, [str(tmp_path / "project")]) == {
        "PATH": f"/usr/bin:{tmp_path}/project2",
        "LD_LIBRARY_PATH": "/opt/lib",
        "HOME": "/home/a",
        "SARI_DAEMON_PORT": "0",
    }
    assert search_path("") == ""
