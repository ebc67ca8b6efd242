"""The shipped IDE images for the real node, without a registry and without a Debian base.

Each contains what its recipe in images/ installs, on this machine's libraries. An image is built once per node and version
of its files.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from codehub.adapters.ide import jupyterlab
from codehub.domain.profiles import CODE_SERVER, JUPYTERLAB
from testing.codehub import docker_ide, toolchain
from testing.codehub.ide import installed_code_server
from testing.codehub.kubernetes import ROOT, SCRIPTS, Node
from testing.codehub.toolchain import debian_python_root

_RECIPES = ROOT / "images"
_JUPYTER = "opt/jupyter/python"
_SITE = f"{_JUPYTER}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
# As pip writes it into a virtual environment.
_JUPYTER_LAB = f"#!/{_JUPYTER}/bin/python\nimport sys\nfrom jupyterlab.labapp import main\nsys.exit(main())\n"
# images/build.sh replaces ipykernel's own.
_KERNEL_PATH = f"{_JUPYTER}/share/jupyter/kernels/python3/kernel.json"


def load_code_server_image(node: Node) -> None:
    def write(layer: Path) -> None:
        with layer.open("wb") as file:
            file.writelines(docker_ide.code_server_root(installed_code_server().parent, debian_python_root))

    recipe = [(_RECIPES / "code-server/start").read_text(), Path(docker_ide.__file__).read_text()]
    version = "\0".join([str(installed_code_server()), *recipe, Path(toolchain.__file__).read_text()])
    _load(node, CODE_SERVER.image, version, write)


def load_jupyterlab_image(node: Node) -> None:
    """Load JupyterLab as pip installed it here, moved to the recipe's place."""
    files = _jupyter_files()
    start = _RECIPES / "jupyterlab/start"
    state = [(inside, path.stat().st_size, path.stat().st_mtime_ns) for path, inside in files.items()]
    ours = (Path(jupyterlab.__file__), Path(toolchain.__file__))
    version = repr((sorted(state), start.read_text(), _JUPYTER_LAB, [path.read_text() for path in ours]))
    _load(node, JUPYTERLAB.image, version, lambda layer: _write_jupyterlab(layer, files, start))


def _load(node: Node, image: str, version: str, write: Callable[[Path], None]) -> None:
    """Import the image unless the node has it in this version. `write` creates its only layer."""
    recipe = (_RECIPES / image.removeprefix("codehub/").partition(":")[0] / "Dockerfile").read_text()
    (environment,) = [line.split()[1:] for line in recipe.splitlines() if line.startswith("ENV ")]
    words = json.dumps([*environment, "/usr/local/bin/codehub-start"])
    stamp = node.lab / f"{image.replace('/', '-')}.loaded"
    digest = hashlib.sha256(f"{version}\0{words}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest and image in node.ctr("images", "ls", "-q"):
        return
    with tempfile.TemporaryDirectory(dir=node.lab) as folder:
        layer, archive = Path(folder) / "layer.tar", Path(folder) / "image.tar"
        write(layer)
        subprocess.run([sys.executable, SCRIPTS / "image.py", archive, image, words, layer], check=True)
        layer.unlink()
        node.ctr("images", "import", str(archive))
    stamp.write_text(digest)


def _jupyter_files() -> dict[Path, str]:
    """Return JupyterLab's files in this virtual environment with their paths in the image, without those we write."""
    inside: dict[Path, str] = {}
    for name in closure("jupyterlab"):
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate())).resolve()
            if ".." not in file.parts:
                inside[path] = f"{_SITE}/{file}"
            elif path.is_relative_to(sys.prefix):
                inside[path] = f"{_JUPYTER}/{path.relative_to(sys.prefix)}"
    ours = (f"{_JUPYTER}/bin/", _KERNEL_PATH)
    return {path: name for path, name in inside.items() if path.is_file() and not name.startswith(ours)}


def _write_jupyterlab(layer: Path, files: dict[Path, str], start: Path) -> None:
    compiled = (path for path in files if ".so" in path.suffixes)
    system = Path("/usr/lib/python3.11/lib-dynload").glob("*.so")
    layer.write_bytes(debian_python_root(tuple(path for path in (*compiled, *system) if is_dynamic(path))))
    with tarfile.open(layer, "a") as out:
        for path, name in sorted(files.items(), key=lambda pair: pair[1]):
            info = out.gettarinfo(path, name)
            info.uid = info.gid = 0
            with path.open("rb") as file:
                out.addfile(info, file)
        link = tarfile.TarInfo(f"{_JUPYTER}/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        out.addfile(link)
        for name, text in (
            (f"{_JUPYTER}/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n"),
            (f"{_JUPYTER}/bin/jupyter-lab", _JUPYTER_LAB),
            ("usr/local/bin/codehub-start", start.read_text()),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o755
            out.addfile(info, io.BytesIO(text.encode()))
        with tempfile.TemporaryDirectory(dir=layer.parent) as folder:
            jupyterlab.write_kernel(Path(folder))
            for path in sorted(Path(folder).rglob("*.*")):
                out.add(path, str(Path(_JUPYTER).parent / path.relative_to(folder)))


def closure(*names: str) -> set[str]:
    """Return the installed distributions that these need, including themselves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            needs: Iterable[str] = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        for need in needs:
            if "extra ==" not in need and (match := re.match(r"[A-Za-z0-9._-]+", need)):
                waiting.append(match[0])
    return found


def is_dynamic(path: Path) -> bool:
    """Return whether a file is a program or library that needs others."""
    return subprocess.run(["ldd", path], capture_output=True, check=False).returncode == 0
