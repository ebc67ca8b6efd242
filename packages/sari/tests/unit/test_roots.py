"""Which directory is the workspace."""

from pathlib import Path

import pytest

from sari.registry.layout import find_layout
from sari.registry.roots import RefusedRoot, find_root, path_of_uri, resolve_root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home", "a/sub", "b", "c", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/.git").mkdir()
    return tmp_path / "home"


def test_the_first_rule_that_applies_decides(home: Path, tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    below = str(tmp_path / "a/sub")

    def root(roots: list[str], directory: str, **environ: str) -> str:
        return find_root(environ, roots, directory, str(home)).path

    assert root([b], below, SARI_WORKSPACE_ROOT=c, CLAUDE_PROJECT_DIR=a) == c
    assert root([b], below, CLAUDE_PROJECT_DIR=c) == b
    assert root([], below, CLAUDE_PROJECT_DIR=c) == c
    assert root([], below) == a
    assert root([], b) == b


def test_only_a_chosen_root_is_worth_a_daemon_before_the_first_call(home: Path, tmp_path: Path) -> None:
    assert find_root({}, [], str(tmp_path / "a/sub"), str(home)).chosen
    assert not find_root({}, [], str(tmp_path / "plain"), str(home)).chosen


def test_two_spellings_are_one_root(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert resolve_root(str(tmp_path / "link/../a/"), str(home)) == str(tmp_path / "a")
    assert resolve_root(str(tmp_path / "link"), str(home)) == str(tmp_path / "a")


@pytest.mark.parametrize("path", ["/", "HOME", "HOME/../home", "~/", "/does/not/exist", "/a\0b"])
def test_what_nobody_means_is_refused_with_what_to_do(home: Path, path: str) -> None:
    with pytest.raises(RefusedRoot, match="workspace"):
        resolve_root(path.replace("HOME", str(home)), str(home))


def test_a_repository_that_is_the_home_itself_does_not_make_the_home_a_workspace(home: Path) -> None:
    (home / ".git").mkdir()
    (home / "notes").mkdir()
    assert find_root({}, [], str(home / "notes"), str(home)).path == str(home / "notes")


def test_uris_of_local_files_are_paths() -> None:
    assert path_of_uri("file:///a%20b/c") == "/a b/c"
    assert path_of_uri("file://localhost/x") == "/x"
    assert path_of_uri("file:///C:/x") == "C:/x"
    assert path_of_uri("file://elsewhere/x") is None
    assert path_of_uri("https://example.org/") is None


def test_the_home_is_never_an_xdg_variable(tmp_path: Path) -> None:
    layout = find_layout({"HOME": str(tmp_path), "XDG_DATA_HOME": "/elsewhere"})
    assert layout.registry_file == str(tmp_path / ".local/share/sari/server.json")
    assert find_layout({"HOME": "/x", "SARI_REGISTRY_FILE": str(tmp_path / "r.json")}).data_dir == str(tmp_path)
    assert find_layout({}).registry_file.endswith("/.local/share/sari/server.json")
