"""Surroundings that are not as they should be: each is one clear error, or none at all."""

import os
import shutil
import subprocess

import pytest

from testing.sari.shim import SARI, found_paths
from testing.sari.world import World


def test_a_directory_in_the_registrys_place_is_set_aside(world: World) -> None:
    world.data.mkdir(parents=True)
    world.registry_file.mkdir()
    (world.registry_file / "something").write_text("kept\n")
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    assert world.registry_file.is_file()
    aside = next(world.data.glob("server.json.damaged-*"))
    assert (aside / "something").read_text() == "kept\n"


@pytest.mark.needs("root")
def test_without_loopback_no_daemon_is_left_behind(world: World) -> None:
    root = world.workspace("project")
    if shutil.which("unshare") is None:
        pytest.fail("unshare is part of util-linux, which every Debian has")
    for _ in range(2):
        searched, asked = (
            subprocess.run(
                ["unshare", "--net", SARI, command, "needle"],
                cwd=root, env=world.environ, capture_output=True, text=True, check=False, timeout=120,
            )
            for command in ("search", "symbols")
        )  # fmt: skip
        assert (searched.returncode, searched.stderr) == (0, "")
        assert asked.returncode == 1
        assert "Traceback" not in asked.stderr
        assert len(asked.stderr.strip().splitlines()) == 1
        world.wait_for_only()


def test_a_reader_that_has_seen_enough_is_no_error(world: World) -> None:
    root = world.workspace("project", **{f"f{number}__txt": "needle\n" * 2000 for number in range(20)})
    searching = subprocess.Popen(
        [SARI, "search", "needle"], cwd=root, env=world.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert searching.stdout is not None
    assert searching.stderr is not None
    assert searching.stdout.readline().endswith(b"needle\n")
    searching.stdout.close()
    complaints = searching.stderr.read()
    searching.stderr.close()
    assert searching.wait(120) == 141
    assert complaints == b""


@pytest.mark.parametrize(
    "words", [("search", "needle"), ("search", "needle", "--json"), ("symbols", "x"), ("--help",)]
)
def test_a_full_device_is_one_line(world: World, words: tuple[str, ...]) -> None:
    root = world.workspace("project", a__py="def x():\n    needle\n")
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = subprocess.run(
            [SARI, *words], cwd=root, env=world.environ, stdout=full, stderr=subprocess.PIPE, check=False, timeout=120
        )
    finally:
        os.close(full)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert b"No space left" in done.stderr.splitlines()[-1]
    assert done.returncode == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_and_moves_no_message_into_the_matches(world: World, closed: str) -> None:
    root = world.workspace("project", a__txt="needle\n" * 500)
    world.open_workspace(root)
    for words in ("search needle --max-tokens 200", "status", "search --help"):
        done = subprocess.run(
            ["sh", "-c", f"exec {SARI} {words} {closed}"],
            cwd=root, env=world.environ, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "" if "2" in closed else done.stderr), words
        assert "Traceback" not in done.stderr
        if words.startswith("search needle") and closed == "2>&-":
            assert all(line.startswith("a.txt:") for line in done.stdout.splitlines())


def test_a_full_device_is_noticed_without_buffers_too(world: World) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        environ = {**world.environ, "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(
            [SARI, "--help"], env=environ, stdout=full, stderr=subprocess.PIPE, check=False, timeout=120
        )
    finally:
        os.close(full)
    assert done.returncode == 1
    assert b"No space left" in done.stderr
