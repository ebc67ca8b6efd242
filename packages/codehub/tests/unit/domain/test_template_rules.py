"""Templates, rule by rule: bounds of sizes, devices, texts and parameters, and the place of each mistake."""

from __future__ import annotations

import json
import tomllib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.applied_template import AppliedTemplate, apply_template, carried_over, decode, encode
from codehub.domain.errors import Invalid
from codehub.domain.profiles import AppProfile, Catalog, Runs
from codehub.domain.schedule import parse_schedule
from codehub.domain.table_reader import Mistake, Mistakes
from codehub.domain.template_options import KubernetesOptions, Size, Toleration
from codehub.domain.template_preview import applied_changes, notes, shown
from codehub.domain.templates import Template, parse_templates, render
from codehub.domain.toml_places import LONGEST_SOURCE, line_of, parse_toml, split_templates
from codehub.services.patterns import compile_pattern


def read(text: str) -> Template:
    (template,) = parse_templates(tomllib.loads(f"[templates.a]\n{text}"), compile_pattern).values()
    return template


def wrong(text: str) -> set[str]:
    """Return the places of the mistakes, below the template."""
    with pytest.raises(Mistakes) as caught:
        read(text)
    return {mistake.where.removeprefix("templates.a.") for mistake in caught.value.mistakes}


def accepts(key: str, value: object) -> bool:
    """Return whether it is accepted; if not, only this key is reported."""
    try:
        read(f"{key} = {json.dumps(value)}")
    except Mistakes as error:
        places = [mistake.where for mistake in error.mistakes]
    else:
        return True
    assert places == [f"templates.a.{key}"]
    return False


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
        read(text)
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
        assert dict(read(text).kubernetes.gpus) == gpus
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
        assert len(read(text).kubernetes.tolerations) == 2


def test_labels_are_those_of_kubernetes() -> None:
    assert accepts("kubernetes.node_selector.pool", "gpu")
    assert accepts("kubernetes.node_selector.pool", "")
    assert not accepts("kubernetes.node_selector.pool", "-gpu")
    assert not accepts("kubernetes.node_selector.-pool", "gpu")


def test_an_affinity_is_bounded() -> None:
    def affinity(length: int) -> str:
        return f'kubernetes = {{affinity = {{nodeAffinity = "{"x" * length}"}}}}'

    around = len(json.dumps({"nodeAffinity": ""}))
    assert json.loads(read(affinity((16 << 10) - around)).kubernetes.affinity)
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
        ('type = "colour"', "type"),
        ("colour = 1", "colour"),
    ],
)
def test_a_parameter_that_contradicts_itself_is_refused_at_the_right_key(text: str, place: str) -> None:
    assert wrong(f"[templates.a.parameters.x]\n{text}") == {f"parameters.x.{place}"}


def _value(text: str, given_value: Any) -> str | None:
    template = read(f'env = {{V = "{{parameters.x}}"}}\n[templates.a.parameters.x]\n{text}')
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
    ],
)
def test_a_parameter_takes_the_values_of_its_kind(text: str, value: object, expected: str | None) -> None:
    assert _value(text, value) == expected


def test_an_image_may_only_depend_on_parameters_that_an_administrator_bounded() -> None:
    def image(parameter: str) -> str:
        return f'image = "team/app:{{parameters.x}}"\n[templates.a.parameters.x]\n{parameter}'

    assert read(image('choices = ["1"]')).image
    assert read(image('pattern = "[0-9]+"')).image
    assert read(image('type = "number"')).image
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
    assert len(read(f"setup = {['true'] * 64}").setup) == 64
    assert read("").schedule is None
    assert read("schedule = {start = '9:00'}").schedule == parse_schedule("9:00", "weekdays", timedelta(minutes=10))
    without = read("schedule = {start = '9:00', jitter = '0m', days = 'daily', stop = '10:00'}").schedule
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


# what applies

_CATALOG = Catalog(
    {
        "ide": AppProfile("ide", command=("x",), image="team/ide:1"),
        "no-image": AppProfile("no-image", command=("x",)),
        "no-command": AppProfile("no-command", image="team/other:1"),
    },
    default="ide",
    allowed_images=("allowed/*",),
)


@pytest.mark.parametrize(
    ("reference", "runs", "run_as", "image", "profile"),
    [
        (None, Runs.COMMAND, "", "ide", "ide"),
        ("ide", Runs.IMAGE, "", "team/ide:1", "ide"),
        ("team/ide:1", Runs.IMAGE, "", "team/ide:1", "ide"),
        ("allowed/app", Runs.IMAGE, "", "allowed/app:latest", "ide"),
        ("any/app:1", Runs.IMAGE, "no-command", "any/app:1", "no-command"),
    ],
)
def test_what_runs_is_a_profile_or_an_allowed_image(
    reference: str | None, runs: Runs, run_as: str, image: str, profile: str
) -> None:
    found, how = _CATALOG.resolve(reference, runs, run_as=run_as)
    assert (found, how.name) == (image, profile)


def test_only_an_image_that_a_user_named_may_be_without_an_ide() -> None:
    assert not _CATALOG.resolve("allowed/app", Runs.IMAGE)[1].own_image
    assert _CATALOG.resolve("any/app", Runs.IMAGE, run_as="ide")[1].own_image
    assert _CATALOG.resolve("ide", Runs.IMAGE)[1].own_image


@pytest.mark.parametrize(
    ("reference", "runs", "run_as", "why"),
    [
        ("no-command", Runs.COMMAND, "", "has no command"),
        ("no-image", Runs.IMAGE, "", "has no image"),
        ("allowed/app", Runs.COMMAND, "", "is not a profile"),
        ("other/app", Runs.IMAGE, "", "CODEHUB_ALLOWED_IMAGES"),
        ("any/app", Runs.IMAGE, "gone", "there is no profile"),
        ("Not An Image", Runs.IMAGE, "", "not an image reference"),
    ],
)
def test_what_may_not_run_is_refused_with_the_reason(reference: str, runs: Runs, run_as: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        _CATALOG.resolve(reference, runs, run_as=run_as)


def test_a_default_that_is_no_profile_is_refused() -> None:
    with pytest.raises(Invalid, match="CODEHUB_DEFAULT_PROFILE"):
        Catalog({"ide": AppProfile("ide")}, default="other")


def test_a_templates_image_runs_in_containers_and_processes_use_its_profile() -> None:
    template = read('image = "any/app:1"\nprofile = "no-image"')
    assert apply_template(template, 1, {}, _CATALOG, Runs.IMAGE).image_ref == "any/app:1"
    assert apply_template(template, 1, {}, _CATALOG, Runs.COMMAND).image_ref == "no-image"
    assert apply_template(read(""), 1, {}, _CATALOG, Runs.COMMAND).profile == "ide"
    with pytest.raises(Invalid):
        apply_template(read('profile = "gone"'), 1, {}, _CATALOG, Runs.COMMAND)
    with_repo = read('repo = "https://a.b/{parameters.x}"\n[templates.a.parameters.x]\n')
    with pytest.raises(Invalid):
        apply_template(with_repo, 1, {"x": "a b"}, _CATALOG, Runs.COMMAND)


def test_values_of_a_parameter_that_is_gone_are_dropped() -> None:
    template = read("[templates.a.parameters.x]\n")
    assert carried_over(template, {"x": "1", "gone": "2"}) == {"x": "1"}


_SIZES = st.builds(Size, st.none() | st.floats(0.01, 9), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
_OPTIONS = st.builds(
    KubernetesOptions,
    runtime_class=st.sampled_from(["", "gvisor"]),
    image_pull_secrets=st.sampled_from([(), ("a", "b")]),
    tolerations=st.sampled_from([(), (Toleration("a", "Exists"), Toleration("b", value="c"))]),
    gpus=st.sampled_from([{}, {"nvidia.com/gpu": 2}]),
    affinity=st.sampled_from(["", "{}"]),
)
_TIMES = st.none() | st.integers(60, 10**6).map(lambda seconds: timedelta(seconds=seconds))
_SCHEDULES = st.sampled_from(
    [None, parse_schedule("9:00"), parse_schedule("0:05", "sat", timedelta(seconds=90), "23:59")]
)


@given(
    st.builds(
        AppliedTemplate,
        name=st.just("a"),
        version=st.integers(0, 3),
        image_ref=st.just("x"),
        profile=st.just("x"),
        parameters=st.dictionaries(
            st.text(max_size=3), st.text(max_size=3) | st.booleans() | st.integers(), max_size=2
        ),
        size=_SIZES,
        setup=st.sampled_from([(), ("a", "b")]),
        ports=st.sampled_from([(), (80, 81)]),
        repo_url=st.sampled_from(["", "https://a.b/c"]),
        ttl_standby=_TIMES,
        ttl_archive=_TIMES,
        schedule=_SCHEDULES,
        kubernetes=_OPTIONS,
    )
)
def test_what_a_row_stores_is_read_back_as_it_was(applied: AppliedTemplate) -> None:
    stored = json.loads(json.dumps(encode(applied)))
    assert decode(stored) == applied
    assert {"name", "version", "image_ref", "profile"} <= set(stored)
    assert decode(None) is None


def test_a_row_omits_what_is_default() -> None:
    assert set(encode(AppliedTemplate("a", 0, "x", "x"))) == {"name", "version", "image_ref", "profile"}


def test_what_has_no_effect_on_a_runtime_is_said() -> None:
    template = read('image = "a"\nsize = {disk = "1G"}\nkubernetes = {runtime_class = "gvisor"}')
    heads = {runtime: [note.split(":")[0] for note in notes(template, runtime)] for runtime in _RUNTIMES}
    assert heads == {
        "process": ["image", "kubernetes", "size.disk"],
        "docker": ["kubernetes", "size.disk"],
        "kubernetes": ["size.disk"],
    }
    assert [notes(read(""), runtime) for runtime in _RUNTIMES] == [[], [], []]


_RUNTIMES = ("process", "docker", "kubernetes")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        ("", "none"),
        ((), "none"),
        (Size(), "default"),
        (Size(cpus=1.5), "1.5 CPUs"),
        (Size(disk_bytes=1 << 30), "1G disk"),
        ({}, "none"),
        ({"B": "2", "A": 1, "C": object}, "A=1, B=2, C"),
        (KubernetesOptions(), "none"),
        (KubernetesOptions(runtime_class="gvisor", gpus={"a.b/c": 1}), "runtime_class=gvisor, gpus=a.b/c=1"),
        ((80, 81), "80, 81"),
        (parse_schedule("9:00", stop="17:30"), "09:00 to 17:30 weekdays"),
        (timedelta(hours=2), "2h"),
        (3, "3"),
    ],
)
def test_a_value_in_the_list_of_changes(value: object, text: str) -> None:
    assert shown(value) == text


def test_changes_name_what_applies_to_new_homes_only_and_not_the_same_thing_twice() -> None:
    old = AppliedTemplate(
        "a", 1, "ide", "ide", repo_url="https://a.b/c", setup=("x",), ttl_standby=timedelta(hours=1)
    )
    new = AppliedTemplate("a", 2, "other", "other", repo_ref="main")
    assert applied_changes(old, new) == [
        "profile: ide → other",
        "repository: https://a.b/c → none (new homes only)",
        "branch or tag: none → main (new homes only)",
        "setup commands: x → none (new homes only)",
        "sleep after: 1h → none",
    ]
    image = AppliedTemplate("a", 2, "team/app:1", "ide")
    assert applied_changes(AppliedTemplate("a", 1, "ide", "ide"), image) == ["image: ide → team/app:1"]
