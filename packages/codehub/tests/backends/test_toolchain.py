"""What people type first in a workspace: pip, npm, python, in a real sandbox, as the workspace's own user."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import websockets

from codehub.adapters.base_python import base_python
from codehub.adapters.ide.jupyterlab import JupyterLabInstall
from codehub.adapters.ide.toolchain import Toolchain
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.launch_plan import ProcessOptions, Tools
from codehub.adapters.process.records import LOG
from codehub.adapters.workspaced_client import WorkspacedClient
from codehub.domain.profiles import JUPYTERLAB
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from codehub.workspaced.home_setup import set_up_environment, set_up_shells
from testing.codehub.contracts.instances import until
from testing.codehub.contracts.instances import wid as workspace_id
from testing.codehub.ide import IDE_DIR, installed_code_server
from testing.codehub.packages import npm_package, wheel
from testing.codehub.processes import ProcessWorld, ended

pytestmark = [
    pytest.mark.needs("bwrap", "slirp4netns", "root"),
    pytest.mark.xdist_group("ide"),
    pytest.mark.timeout(600),
]


def wid() -> str:
    return workspace_id(4_701)


async def owner(_: str) -> str:
    return 'Ada "the" First'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ProcessWorld]:
    installed_code_server()
    chain = Toolchain(IDE_DIR)
    # Installed in one place and seen in another, as after a move of the data directory.
    JupyterLabInstall(IDE_DIR).ensure(ignore_progress)
    (tmp_path / "ide").symlink_to(IDE_DIR)
    instances = ProcessInstances(
        tmp_path / "run",
        ProcessOptions(grace_s=5, hidden=(tmp_path,), log_bytes=200_000),
        {"jupyter-lab": JupyterLabInstall(tmp_path / "ide").ensure},
        toolchain=lambda: Tools(base_python(), chain.ensure_pip(), chain.node()),
        owner_name=owner,
    )
    async with ended(ProcessWorld(tmp_path, instances)) as made:
        yield made


async def start(world: ProcessWorld) -> Path:
    """The home of a workspace that runs."""
    spec = await world.spec(wid())
    home = Path(spec.mount.source)
    for name in ("one", "two", "three"):
        (home / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, f"run-{name}"))
    (home / "tool.tgz").write_bytes(npm_package("run-tool"))
    await world.instances.start(spec, ignore_progress, no_fence)
    await until(lambda: world.instances.probe(wid(), spec.profile), "the workspace answers")
    helper = (await world.instances.status(wid())).workspaced
    assert helper is not None
    await until(lambda: WorkspacedClient().listens(helper), "the home is set up")
    return home


def set_up(home: str, pip: str) -> None:
    set_up_shells(home)
    set_up_environment(home, pip)


async def shell(world: ProcessWorld, command: str) -> str:
    return (await world.ask(wid(), f"bash -lc {shlex.quote(command)} 2>&1")).strip()


async def test_pip_npm_and_python_work_in_a_new_workspace(world: ProcessWorld) -> None:
    await start(world)
    install = "--no-index --disable-pip-version-check -q"
    assert "one works" in await shell(world, f"pip install {install} ~/one-1.0*.whl && run-one")
    assert "two works" in await shell(world, f"pip install --user {install} ~/two-1.0*.whl && run-two")
    assert "three works" in await shell(world, f"python3 -m pip install {install} ~/three-1.0*.whl && run-three")
    assert "run-tool works" in await shell(world, "npm install -g --silent ~/tool.tgz && run-tool")
    where = (await shell(world, "command -v python pip run-one run-two run-tool")).split()
    assert where == [
        "/home/coder/.venv/bin/python",
        "/home/coder/.venv/bin/pip",
        "/home/coder/.venv/bin/run-one",
        "/home/coder/.local/bin/run-two",
        "/home/coder/.local/bin/run-tool",
    ]
    # Without a login shell, as a command over SSH or the API has it.
    assert "one works" in await world.ask(wid(), "run-one; node --version; npx --version")
    assert "PS1" in await shell(world, "cat ~/.bashrc")


async def test_node_trusts_the_certificates_that_the_machine_trusts(world: ProcessWorld) -> None:
    await start(world)
    script = "const of = tls.getCACertificates, all = new Set(of('default')); of('system').every(one => all.has(one))"
    assert await shell(world, f'node -p "{script}"') == "true"


async def test_git_commits_under_the_owners_name_until_it_is_configured(world: ProcessWorld) -> None:
    await start(world)
    commit = "git init -q ~/r; cd ~/r; git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"
    assert (await shell(world, commit)).endswith('Ada "the" First <Ada "the" First@users.codehub.invalid>')
    assert (await shell(world, f"git config --global user.name Mine; {commit}")).splitlines()[-1].startswith("Mine <")


async def test_codehubs_own_environment_is_not_in_a_workspace(world: ProcessWorld) -> None:
    await start(world)
    assert "No module named" in await shell(world, "python3 -c 'import codehub'")
    assert "No module named" in await shell(world, "python3 -c 'import fastapi'")
    assert await shell(world, "command -v codehub uvicorn || echo none") == "none"


async def test_what_was_installed_is_there_after_another_start_and_nothing_of_pip_is_in_the_home(
    world: ProcessWorld,
) -> None:
    home = await start(world)
    await shell(world, "pip install --no-index -q ~/one-1.0*.whl; echo mine >> ~/.bashrc")
    size = sum(
        path.stat().st_size for path in (home / ".venv").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert size < 200_000, "an archive of a new home stays small"
    await world.instances.stop(wid(), no_fence)
    await start(world)
    assert "one works" in await shell(world, "run-one")
    assert (home / ".bashrc").read_text().endswith("mine\n"), "the user's file is the user's"


async def test_a_cell_of_jupyterlab_runs_in_the_workspaces_environment(world: ProcessWorld) -> None:
    home = world.base / "homes" / wid() / "files"
    home.mkdir(parents=True)
    (home / "one-1.0-py3-none-any.whl").write_bytes(wheel("one", "run-one"))
    spec = InstanceSpec(wid(), "jupyterlab", JUPYTERLAB, Mount(MountKind.DIR, str(home)))
    await world.instances.start(spec, ignore_progress, no_fence)
    await until(lambda: world.instances.probe(wid(), JUPYTERLAB), "JupyterLab answers")
    said = await _run_cell(
        world, "%pip install --no-index -q ~/one-1.0-py3-none-any.whl\nimport one, sys\none.main()\nprint(sys.prefix)"
    )
    log = (world.base / "run" / wid() / LOG).read_text()
    assert "Kernel started" in log
    assert "restarting kernel" not in log, "the first kernel is the one that answers"
    assert "one works" in said
    assert "/home/coder/.venv" in said


def test_the_kernel_of_an_earlier_install_gets_rid_of_the_place_of_that_install(tmp_path: Path) -> None:
    install = JupyterLabInstall(tmp_path)
    spec = install.home / "python/share/jupyter/kernels/python3/kernel.json"
    for path in (install.bin_dir / "jupyter-lab", install.home / "kernel.py", spec):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    spec.write_text(json.dumps({"argv": ["/usr/bin/env", "python3", str(install.home / "kernel.py")]}))
    install.ensure(ignore_progress)
    assert str(tmp_path) not in spec.read_text()
    assert "{prefix}/../kernel.py" in json.loads(spec.read_text())["argv"]
    assert "ipykernel" in (install.home / "kernel.py").read_text()
    written = spec.stat().st_ino
    install.ensure(ignore_progress)
    assert spec.stat().st_ino == written, "what is right stays as it is"


async def _run_cell(world: ProcessWorld, code: str) -> str:
    """What a cell prints, by the kernel's own protocol, as the page speaks it."""
    upstream = await world.instances.resolve_upstream(wid())
    assert upstream is not None
    assert upstream.secret is not None
    headers, base = dict([upstream.secret]), f"/w/{wid()}"
    transport = httpx.AsyncHTTPTransport(uds=upstream.socket_path)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers, timeout=60
    ) as http:
        kernel = (await http.post(f"{base}/api/kernels", json={"name": "python3"})).json()["id"]
    header = {
        "msg_id": "m1",
        "msg_type": "execute_request",
        "session": "s",
        "username": "",
        "version": "5.3",
        "date": "",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    said = []
    url = f"ws://localhost{base}/api/kernels/{kernel}/channels"
    async with websockets.unix_connect(
        upstream.socket_path, url, additional_headers=headers, open_timeout=120
    ) as channel:
        await channel.send(json.dumps(message))
        async with asyncio.timeout(240):
            async for raw in channel:
                answer = json.loads(raw)
                if answer["parent_header"].get("msg_id") != "m1":
                    continue
                if answer["msg_type"] == "stream":
                    said.append(answer["content"]["text"])
                if answer["msg_type"] == "error":
                    said.extend(answer["content"]["traceback"])
                if answer["msg_type"] == "execute_reply":
                    break
    return "".join(said)


def test_an_environment_of_the_users_own_is_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / ".venv"
    (mine / "bin").mkdir(parents=True)
    (mine / "bin/python").symlink_to(base_python())
    (mine / "pyvenv.cfg").write_text("home = mine\n")
    set_up(str(tmp_path), "/somewhere/pip")
    assert (mine / "pyvenv.cfg").read_text() == "home = mine\n"
    assert sorted(path.name for path in (mine / "bin").iterdir()) == ["python"]
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    (elsewhere / ".venv").write_text("not a folder")
    set_up(str(elsewhere), "/somewhere/pip")
    assert (elsewhere / ".venv").read_text() == "not a folder"


def test_an_environment_whose_python_is_gone_gets_the_new_one_and_keeps_its_packages(tmp_path: Path) -> None:
    set_up(str(tmp_path), "")
    place = tmp_path / ".venv"
    old = place / "lib/python3.0/site-packages"
    old.mkdir(parents=True)
    (old / "kept.py").touch()
    for path in (place / "bin").glob("python*"):
        path.unlink()
        path.symlink_to("/nowhere/python3.0")
    set_up(str(tmp_path), "/somewhere/pip")
    assert (place / "bin/python").resolve() == base_python()
    assert (old / "kept.py").exists()
    assert (place / "bin/pip").exists()


@pytest.mark.parametrize("left", [[], ["bin"], ["bin", "lib", "pyvenv.cfg"]], ids=str)
def test_a_set_up_that_was_killed_is_finished_by_the_next(tmp_path: Path, left: list[str]) -> None:
    place = tmp_path / ".venv"
    place.mkdir()
    for name in left:
        (place / name).touch() if "." in name else (place / name).mkdir()
    set_up(str(tmp_path), "/somewhere/pip")
    assert (place / "bin/python").exists()
    assert (place / "bin/pip").exists()
