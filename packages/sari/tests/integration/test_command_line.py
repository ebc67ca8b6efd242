"""`sari search` and `sari symbols` print what ripgrep would, to pipe and to click on."""

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sari.index.ripgrep import PROGRAM
from testing.sari import trees
from testing.sari.home import SariHome, sari_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SariHome]:
    with sari_home(tmp_path_factory.mktemp("command-line")) as made:
        for number in range(300):
            trees.write_source(random.Random(number), made.workspace / f"src/d{number % 7}/f{number}.py", number)
        made.write("src/shapes.py", "class Circle:\n    def area(self):\n        return Area\n\nAREA = 3\n")
        yield made


def _ripgrep(root: Path, *words: str) -> list[str]:
    command = [PROGRAM, "--no-config", "--hidden", "--glob", "!.git", "--line-number", "--no-heading", *words]
    done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("needle",), ("-F", "-S", "needle")),
        (("-w", "beta"), ("-F", "-S", "-w", "beta")),
        (("-i", "AREA"), ("-F", "-i", "AREA")),
        (("-s", "AREA"), ("-F", "AREA")),
        (("-E", r"needle.*_4\d$"), ("-S", r"needle.*_4\d$")),
        (("-g", "src/d1/**", "gamma"), ("-F", "-S", "-g", "src/d1/**", "gamma")),
        (("-C", "1", "return Area"), ("-F", "-S", "-C", "1", "return Area")),
    ],
)
def test_a_search_prints_the_lines_that_ripgrep_prints(
    home: SariHome, mine: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    done = home.sari("search", *mine)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == _ripgrep(home.workspace, *theirs)


def test_a_page_and_what_is_left_of_it_are_told_apart(home: SariHome) -> None:
    done = home.sari("search", "needle", "--max-tokens", "200")
    assert 0 < len(done.stdout.splitlines()) < 20
    assert "cursor: " in done.stderr
    answer = json.loads(home.sari("search", "needle", "--json").stdout)
    assert answer["complete"] is True


def test_nothing_found_is_exit_code_one_and_nothing_on_stdout(home: SariHome) -> None:
    done = home.sari("search", "no such text anywhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert home.sari("symbols", "no_such_symbol").returncode == 1


def test_symbols_are_places_to_click_on(home: SariHome) -> None:
    done = home.sari("symbols", "area", "--kind", "method")
    assert done.stdout == "src/shapes.py:2:method Circle.area\n"
