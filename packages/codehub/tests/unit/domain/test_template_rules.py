"""Templates, rule by rule: bounds of sizes, devices, texts and parameters, and the place of each mistake."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from codehub.domain.errors import Invalid
from codehub.domain.schedule import parse_schedule
from codehub.domain.table_reader import Mistake, Mistakes
from codehub.domain.templates import parse_templates, render
from codehub.domain.toml_places import LONGEST_SOURCE, line_of, parse_toml, split_templates
from codehub.services.patterns import compile_pattern
from testing.codehub.template_texts import read_template


def wrong(text: str) -> set[str]:
    """Return the places of the mistakes, below the template."""
    with pytest.raises(Mistakes) as caught:
        read_template(text)
    return {mistake.where.removeprefix("templates.a.") for mistake in caught.value.mistakes}


def accepts(key: str, value: object) -> bool:
    """Return whether it is accepted; if not, only this key is reported."""
    try:
        read_template(f"{key} = {toml(value)}")
    except Mistakes as error:
        places = [mistake.where for mistake in error.mistakes]
    else:
        return True
    assert places == [f"templates.a.{key}"]
    return False


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key",
    [
        "codehub.dev/role",
        "codehub.dev/installation",
        "x.codehub.dev/a",
        "app.kubernetes.io/managed-by",
        "a b",
        "/a",
        "A/",
    ],
)
def test_labels_and_annotations_of_codehub_are_its_own(kind: str, key: str) -> None:
    assert wrong(f"[templates.a.kubernetes.{kind}]\n{json.dumps(key)} = 'x'") == {f"kubernetes.{kind}.{key}"}


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("size.cpus", [0.01, 1, 1024], [0.009, 0, -1, 1024.5]),
        ("size.memory", ["64M", "65536G", "64T"], ["63M", "65T", "65537G"]),
        ("size.disk", ["16M", "1024T"], ["15M", "1025T"]),
        ("ttl_standby", ["1m", "60s", "366d"], ["59s", "367d", "0s"]),
        ("ttl_archive", ["1m", "366d"], ["59.9s", "366.1d"]),
        ("ports", [[1, 65_535], []], [[0], [65_536], [1, -1]]),
        ("setup", [["x" * 8192], ["a", "b"]], [["x"] * 65]),
        ("description", ["d" * 1024], ["d" * 1025]),
        ("kubernetes.runtime_class", ["gvisor", "a.b-c", "x" * 253], ["-x", "x-", "X", "x" * 254]),
        ("kubernetes.priority_class", ["high"], ["High"]),
        ("kubernetes.image_pull_secrets", [["a", "b"]], [["a", "B"]]),
        (
            "kubernetes.labels",
            [{"team": "a"}, {"example.org/cost-centre": "4711", "codehub.dev.example.org/x": ""}],
            [],
        ),
        ("kubernetes.annotations", [{"example.org/note": "any text: ü"}], [{"example.org/n": "x" * (64 << 10)}]),
        ("parameters.x.default", ["t" * 256], ["t" * 257, "a\n"]),
    ],
)
def test_a_value_is_accepted_up_to_its_bound_and_refused_beyond_it(
    key: str, inside: list[object], outside: list[object]
) -> None:
    assert [value for value in inside if not accepts(key, value)] == []
    assert [value for value in outside if accepts(key, value)] == []


@pytest.mark.parametrize("command", ["", "  ", "x" * 8193, "a\0b", "echo {parameters.x}"])
def test_a_setup_command_that_cannot_run_is_named_by_its_number(command: str) -> None:
    assert wrong(f"setup = ['true', {json.dumps(command)}]") == {"setup[1]"}


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("A", True),
        ("_x1", True),
        ("1A", False),
        ("A-B", False),
        ("HOME", False),
        ("LD_X", False),
        ("CODEHUB_A", False),
    ],
)
def test_an_environment_variable_is_not_one_of_codehubs(name: str, fits: bool) -> None:
    assert accepts(f"env.{name}", "x") is fits


def test_the_value_of_a_variable_is_a_text_of_at_most_32_kib() -> None:
    assert accepts("env.A", "x" * 32_768)
    assert not accepts("env.A", "x" * 32_769)
    assert not accepts("env.A", "a\0b")
    assert wrong("env = {A = 1}") == {"env"}
    # Both are wrong, and both are said.
    assert len(_messages("env = {'1' = \"a\\u0000b\"}")) == 2


def _messages(text: str) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        read_template(text)
    return [mistake.message for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("gpus", "fits"),
    [
        ({"nvidia.com/gpu": 1}, True),
        ({"nvidia.com/gpu": 64}, True),
        ({"nvidia.com/gpu": 0}, False),
        ({"nvidia.com/gpu": 65}, False),
        ({"nvidia.com/gpu": True}, False),
        ({"gpu": 1}, False),
        ({"Nvidia.com/gpu": 1}, False),
    ],
)
def test_devices_are_counted_from_1_to_64(gpus: dict[str, object], fits: bool) -> None:
    table = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in gpus.items())
    text = f"kubernetes = {{gpus = {{{table}}}}}"
    if fits:
        assert dict(read_template(text).kubernetes.gpus) == gpus
    else:
        assert wrong(text) == {f"kubernetes.gpus.{next(iter(gpus))}"}


@pytest.mark.parametrize(
    ("table", "places"),
    [
        ('{key = "a"}', set()),
        ('{key = "a", value = "b", effect = "NoExecute"}', set()),
        ('{operator = "Exists"}', set()),
        ('{operator = "Exists", value = "x"}', {"value"}),
        ('{operator = "Equal", value = "x"}', {"key"}),
        ('{value = "x"}', {"key"}),
        ('{key = "-a"}', {"key"}),
        ('{key = "a", value = "-b"}', {"value"}),
        ('{key = "a", effect = "Never"}', {"effect"}),
        ('{key = "a", operator = "In"}', {"operator"}),
        ('{key = "a", colour = "red"}', {"colour"}),
    ],
)
def test_a_toleration_is_one_of_kubernetes(table: str, places: set[str]) -> None:
    text = f"kubernetes = {{tolerations = [{{key = 'first'}}, {table}]}}"
    if places:
        assert wrong(text) == {f"kubernetes.tolerations[1].{place}" for place in places}
    else:
        assert len(read_template(text).kubernetes.tolerations) == 2


def test_labels_are_those_of_kubernetes() -> None:
    assert accepts("kubernetes.node_selector.pool", "gpu")
    assert accepts("kubernetes.node_selector.pool", "")
    assert not accepts("kubernetes.node_selector.pool", "-gpu")
    assert not accepts("kubernetes.node_selector.-pool", "gpu")


def test_an_affinity_is_the_same_in_any_order() -> None:
    one, other = "nodeAffinity = {a = 1, b = 2}", "podAffinity = {}"
    texts = [f"kubernetes = {{affinity = {{{first}, {second}}}}}" for first, second in ((one, other), (other, one))]
    assert len({read_template(text).kubernetes.affinity for text in texts}) == 1


def test_an_affinity_is_bounded() -> None:
    def affinity(length: int) -> str:
        return f'kubernetes = {{affinity = {{nodeAffinity = "{"x" * length}"}}}}'

    around = len(json.dumps({"nodeAffinity": ""}))
    assert json.loads(read_template(affinity((16 << 10) - around)).kubernetes.affinity)
    assert wrong(affinity((16 << 10) - around + 1)) == {"kubernetes.affinity"}
    assert wrong("kubernetes = {affinity = {nodeAffinity = {}, other = {}}}") == {"kubernetes.affinity"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('type = "choice"', "choices"),
        ('type = "text"\nchoices = ["a"]', "choices"),
        ('type = "number"\npattern = "a"', "pattern"),
        ("min = 1", "min"),
        ("max = 1", "max"),
        ('type = "number"\ndefault = "x"', "default"),
        ('type = "number"\nmin = 2\ndefault = 1', "default"),
        ('type = "number"\nmax = 2\ndefault = 3', "default"),
        ('type = "number"\nmin = true', "min"),
        ('choices = ["a"]\ndefault = "b"', "default"),
        ('type = "switch"\ndefault = 1', "default"),
        ('pattern = "a+"\ndefault = "b"', "default"),
        ('pattern = "a"\nvalidation = "a"', "validation"),
        ('validation = "("', "validation"),
        ('type = "colour"', "type"),
        ("colour = 1", "colour"),
    ],
)
def test_a_parameter_that_contradicts_itself_is_refused_at_the_right_key(text: str, place: str) -> None:
    assert wrong(f"[templates.a.parameters.x]\n{text}") == {f"parameters.x.{place}"}


def _value(text: str, given_value: Any) -> str | None:
    template = read_template(f'env = {{V = "{{parameters.x}}"}}\n[templates.a.parameters.x]\n{text}')
    try:
        return render(template, {"x": given_value}).env["V"]
    except Mistakes:
        return None


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ('type = "number"\nmin = 1\nmax = 8', 1, "1"),
        ('type = "number"\nmin = 1\nmax = 8', 8, "8"),
        ('type = "number"\nmin = 1\nmax = 8', 0.5, None),
        ('type = "number"\nmin = 1\nmax = 8', 8.5, None),
        ('type = "number"', -3.5, "-3.5"),
        ('type = "number"', float("nan"), None),
        pytest.param('type = "number"', 10**400, None, id="huge"),
        pytest.param('type = "number"\nmin = 1', -(10**400), None, id="huge and negative"),
        ('type = "number"', "3", None),
        ('type = "number"', False, None),
        ('type = "switch"', True, "true"),
        ('type = "switch"', False, "false"),
        ('type = "switch"', "true", None),
        ('choices = ["a", "b"]', "b", "b"),
        ('choices = ["a", "b"]', "c", None),
        ('type = "text"', "t" * 256, "t" * 256),
        ('type = "text"', "t" * 257, None),
        ('type = "text"', "a\nb", None),
        ('type = "text"', 5, None),
        ('pattern = "v[0-9]"', "v1", "v1"),
        ('pattern = "v[0-9]"', "v12", None),
        ('validation = "v[0-9]"', "v1", "v1"),
        ('validation = "v[0-9]"', "v12", None),
    ],
)
def test_a_parameter_takes_the_values_of_its_kind(text: str, value: object, expected: str | None) -> None:
    assert _value(text, value) == expected


def test_an_image_may_only_depend_on_parameters_that_an_administrator_bounded() -> None:
    def image(parameter: str) -> str:
        return f'image = "team/app:{{parameters.x}}"\n[templates.a.parameters.x]\n{parameter}'

    assert read_template(image('choices = ["1"]')).image
    assert read_template(image('pattern = "[0-9]+"')).image
    assert read_template(image('type = "number"')).image
    assert wrong(image('type = "text"')) == {"image"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('image = "a:{parameters.x}"', "image"),
        ('repo = {url = "https://a.b/c", ref = "{parameters.x}"}', "repo.ref"),
        ('repo = {url = "https://a.b/{parameters.x}"}', "repo.url"),
        ('repo = {url = "https://a.b/c", path = "{parameters.x}"}', "repo.path"),
        ('env = {A = "{parameters.x}"}', "env.A"),
        ('repo = {ref = "main"}', "repo.url"),
        ('repo = {url = "https://a.b/c", colour = 1}', "repo.colour"),
        ('repo = {url = "https://a.b/c", ref = "-x"}', "repo"),
        ("repo = 3", "repo"),
        ("setup = [1]", "setup"),
        ('setup = "x"', "setup"),
        ("ports = [true]", "ports"),
        ('size = "big"', "size"),
        ('access = "everyone"', "access"),
        ("schedule = {start = '9:00', jitter = '3h'}", "schedule"),
        ("schedule = {start = '9:00', colour = 1}", "schedule.colour"),
        ("parameters = {A = {}}", "parameters.A"),
        ("parameters = {a = 1}", "parameters.a"),
    ],
)
def test_a_mistake_has_the_place_where_it_is_fixed(text: str, place: str) -> None:
    assert wrong(text) == {place}


def test_64_entries_fit_and_an_omitted_schedule_is_none() -> None:
    assert len(read_template(f"setup = {['true'] * 64}").setup) == 64
    assert read_template("").schedule is None
    assert read_template("schedule = {start = '9:00'}").schedule == parse_schedule(
        "9:00", "weekdays", timedelta(minutes=10)
    )
    without = read_template("schedule = {start = '9:00', jitter = '0m', days = 'daily', stop = '10:00'}").schedule
    assert without == parse_schedule("9:00", "daily", timedelta(), "10:00")


@pytest.mark.parametrize("document", [{}, {"templates": {}}, {"templates": 3}, {"templates": {"a": 3}}, {"x": 1}])
def test_a_document_without_templates_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(Mistakes) as caught:
        parse_templates(document, compile_pattern)
    assert len(caught.value.mistakes) == 1


def test_a_mistake_without_a_place_is_shown_alone() -> None:
    assert str(Mistakes([Mistake("a.b", "is wrong"), Mistake("", "is empty")])) == "a.b: is wrong; is empty"


# where a mistake is in the file

_FILE = """\
# a comment
[templates.a]
ports = [0]
"quoted" = 1
env.DEEP = "x"

[templates.a.size]  # comment
memory = "x"
[templates."b c"]
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("templates.a", 2),
        ("templates.a.ports", 3),
        ("templates.a.quoted", 4),
        ("templates.a.env.DEEP", 5),
        ("templates.a.size", 7),
        ("templates.a.size.memory", 8),
        ("templates.a.size.memory.deeper", 8),
        ("templates.a.missing", 2),
        ("templates.other", None),
    ],
)
def test_a_mistake_is_shown_at_its_line_or_at_the_line_of_what_it_is_in(where: str, line: int | None) -> None:
    assert line_of(_FILE, Mistake(where, "is wrong")) == line


def test_a_mistake_of_toml_itself_has_the_parsers_line() -> None:
    with pytest.raises(Mistakes) as caught:
        parse_toml("[templates.a]\nports = [\n= 3\n")
    (mistake,) = caught.value.mistakes
    assert line_of("", mistake) == 3
    assert line_of("", Mistake("", "no line in it")) is None


def test_a_text_is_bounded_and_has_no_nul_and_is_not_nested_without_end() -> None:
    assert parse_toml("#" * LONGEST_SOURCE) == {}
    assert LONGEST_SOURCE == 128 << 10
    for text, why in (
        ("#" * (LONGEST_SOURCE + 1), "longer than 128 KiB"),
        ("a = '\0'", "NUL"),
        ("a = " + "[" * 50_000 + "]" * 50_000, "nested too deeply"),
    ):
        with pytest.raises(Mistakes, match=why):
            parse_toml(text)


def test_templates_are_taken_apart_wherever_their_tables_stand() -> None:
    text = (
        "# about a\n[templates.a]\nports = [1]\n\n# about b\n[templates.b]\nports = [2]\n\n"
        "# more of a\n[templates.a.env]\nX = '1'\n# the end\n"
    )
    parts = split_templates(text)
    assert parts["a"] == "# about a\n[templates.a]\nports = [1]\n\n# more of a\n[templates.a.env]\nX = '1'\n"
    assert parts["b"] == "# about b\n[templates.b]\nports = [2]\n"
    alone = "# head\n[templates.a]\n# tail\n"
    assert split_templates(alone) == {"a": alone}


@pytest.mark.parametrize("text", ["[templates]\na = {}\nb = {}\n", "templates = {a = {}, b = {}}\n"])
def test_templates_without_tables_of_their_own_cannot_be_taken_apart(text: str) -> None:
    with pytest.raises(Invalid, match="push it alone"):
        split_templates(text)
