"""Templates: what is read from TOML, how mistakes are reported, and what parameters can and cannot do."""

from __future__ import annotations

import contextlib
import json
import tomllib
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.kubernetes.manifests import PodOptions
from codehub.adapters.kubernetes.template_pods import for_transfers, with_template
from codehub.domain.applied_template import AppliedTemplate, apply_template, decode, encode
from codehub.domain.errors import Invalid
from codehub.domain.parameters import fill
from codehub.domain.profiles import Catalog, Runs
from codehub.domain.table_reader import Mistakes
from codehub.domain.template_preview import applied_changes
from codehub.domain.templates import Access, Template, parameter_env, parse_templates, render, source_of
from codehub.domain.toml_places import split_templates
from codehub.domain.units import parse_bytes, parse_duration
from codehub.services.patterns import compile_pattern

CATALOG = Catalog()
WEB = """
[templates.web]
description = "A web service"
access = "admins"
profile = "code-server"
size = {cpus = 2, memory = "4G", disk = "20G"}
setup = ["npm ci", "echo $CODEHUB_PARAM_NODE"]
ports = [3000]
ttl_standby = "2h"
env = {NODE_VERSION = "{parameters.node}", CI = "1"}

[templates.web.repo]
url = "https://example.org/team/web.git"
ref = "{parameters.branch}"

[templates.web.schedule]
start = "9:00"

[templates.web.parameters.node]
choices = ["20", "22"]
default = "22"

[templates.web.parameters.branch]
pattern = "[a-z/]+"
default = "main"

[templates.web.parameters.workers]
type = "number"
min = 1
max = 8
default = 2

[templates.web.parameters.debug]
type = "switch"
default = false
"""


def read(text: str) -> Template:
    (template,) = parse_templates(tomllib.loads(text), compile_pattern).values()
    return template


def mistakes_of(text: str) -> dict[str, str]:
    with pytest.raises(Mistakes) as caught:
        parse_templates(tomllib.loads(text), compile_pattern)
    return {mistake.where: mistake.message for mistake in caught.value.mistakes}


def test_a_template_is_read_and_its_parameters_are_filled_in() -> None:
    template = read(WEB)
    assert template.access is Access.ADMINS
    assert template.size.memory_bytes == 4 << 30
    assert template.ttl_standby == timedelta(hours=2)
    rendered = render(template, {"node": "20", "branch": "feature/x"})
    assert dict(rendered.env) == {"NODE_VERSION": "20", "CI": "1"}
    source = source_of(rendered)
    assert source is not None
    assert source.ref == "feature/x"
    assert parameter_env(template, {"workers": 3})["CODEHUB_PARAM_WORKERS"] == "3"
    assert parameter_env(template, {})["CODEHUB_PARAM_DEBUG"] == "false"


def test_every_mistake_is_reported_at_its_place_at_once() -> None:
    found = mistakes_of(
        """
        [templates.a]
        colour = "red"
        size = {memory = "lots", gpus = 1}
        ports = [0]
        image = "not an image!!"
        repo = "file:///etc"
        env = {LD_PRELOAD = "x", "A-B" = "y"}
        setup = ["echo {parameters.x}"]
        ttl_standby = "soon"
        [templates.a.schedule]
        start = "25:00"
        [templates.a.parameters.x]
        type = "choice"
        [templates.B]
        """
    )
    assert set(found) == {
        "templates.a.colour",
        "templates.a.size.memory",
        "templates.a.size.gpus",
        "templates.a.ports",
        "templates.a.image",
        "templates.a.repo",
        "templates.a.env.LD_PRELOAD",
        "templates.a.env.A-B",
        "templates.a.setup[0]",
        "templates.a.ttl_standby",
        "templates.a.schedule",
        "templates.a.parameters.x.choices",
        "templates.B",
    }


@pytest.mark.parametrize(
    ("given_values", "where"),
    [
        ({"node": "18"}, "parameters.node"),
        ({"branch": "x; rm -rf ~"}, "parameters.branch"),
        ({"branch": 3}, "parameters.branch"),
        ({"workers": 9}, "parameters.workers"),
        ({"workers": float("nan")}, "parameters.workers"),
        ({"workers": True}, "parameters.workers"),
        ({"debug": "yes"}, "parameters.debug"),
        ({"nonsense": 1}, "parameters.nonsense"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_name(given_values: dict[str, object], where: str) -> None:
    with pytest.raises(Mistakes) as caught:
        render(read(WEB), given_values)  # type: ignore[arg-type]
    assert [mistake.where for mistake in caught.value.mistakes] == [where]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('n]\ntype = "number"\nmin = 5\nmax = 1\n', "n.min"),
        ('n]\ntype = "number"\ndefault = inf\n', "n.default"),
        ('n]\ntype = "number"\nmin = -inf\n', "n.min"),
        ('n]\ntype = "number"\nmax = nan\n', "n.max"),
        ('c]\nchoices = ["a", "a"]\n', "c.choices"),
        ("a-b]\n[templates.a.parameters.a_b]\n", "a_b"),
    ],
)
def test_a_parameter_that_nobody_could_use_is_a_mistake(text: str, where: str) -> None:
    assert list(mistakes_of(f"[templates.a.parameters.{text}")) == [f"templates.a.parameters.{where}"]


def test_a_repository_with_a_password_is_refused_also_with_a_parameter_in_it() -> None:
    for url in ("https://u:hunter2@h/{parameters.x}.git", "u:hunter2@h/{parameters.x}.git"):
        found = mistakes_of(f'[templates.a]\nrepo = "{url}"\n[templates.a.parameters.x]\n')
        assert list(found) == ["templates.a.repo"]
        assert "hunter2" not in found["templates.a.repo"]
    assert read('[templates.a]\nrepo = "git@h:{parameters.x}.git"\n[templates.a.parameters.x]\n')


def test_a_parameter_without_a_default_must_be_given() -> None:
    template = read("[templates.a]\n[templates.a.parameters.name]\n")
    with pytest.raises(Mistakes, match="a value is needed"):
        render(template, {})
    assert render(template, {"name": "x"}).name == "a"


def test_an_update_says_what_will_change() -> None:
    old, new = read(WEB), read(WEB.replace('"4G"', '"8G"').replace("ports = [3000]", "ports = [3000, 5173]"))
    before, after = (apply_template(each, 1, {}, CATALOG, Runs.COMMAND) for each in (old, new))
    assert applied_changes(before, after) == [
        "size: 2 CPUs, 4G memory, 20G disk → 2 CPUs, 8G memory, 20G disk",
        "ports: 3000 → 3000, 5173",
    ]
    assert applied_changes(before, before) == []


@given(st.dictionaries(st.sampled_from("ab"), st.text(max_size=20), min_size=2, max_size=2))
def test_a_value_that_looks_like_a_placeholder_is_not_filled_in_again(values: dict[str, str]) -> None:
    tricky = {"a": "{parameters.b}", "b": values["b"]}
    assert fill("{parameters.a}", tricky) == "{parameters.b}"
    assert fill("x{parameters.a}y{parameters.b}", values) == f"x{values['a']}y{values['b']}"


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "size",
                        "repo",
                        "env",
                        "setup",
                        "ports",
                        "parameters",
                        "schedule",
                        "kubernetes",
                        "x",
                        "type",
                        "default",
                        "choices",
                        "url",
                        "gpus",
                        "memory",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_document_does_anything_but_parse_or_be_refused(document: object) -> None:
    with contextlib.suppress(Mistakes):
        parse_templates({"templates": {"a": document}}, compile_pattern)


@pytest.mark.parametrize("text", ["", "h", "1", "-1h", "1 h", "1w", "nan h", "1e9h", "²h", "9" * 400 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "G", "4", "-4G", "4.5G", "4GB", "٤G", "9" * 19 + "G"])
def test_what_is_no_amount_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_bytes(text)


def test_what_is_kept_with_a_workspace_is_read_back_as_it_was() -> None:
    source = (
        WEB
        + """
[templates.web.kubernetes]
runtime_class = "gvisor"
node_selector = {"example.org/pool" = "gpu"}
image_pull_secrets = ["registry"]
gpus = {"nvidia.com/gpu" = 2}
tolerations = [{key = "gpu", operator = "Exists", effect = "NoSchedule"}]
[templates.web.kubernetes.affinity.nodeAffinity]
preferredDuringSchedulingIgnoredDuringExecution = []
"""
    )
    made = apply_template(read(source), 3, {"node": "20"}, CATALOG, Runs.COMMAND)
    assert decode(json.loads(json.dumps(encode(made)))) == made
    least = AppliedTemplate("a", 1, "code-server", "code-server")
    assert decode(json.loads(json.dumps(encode(least)))) == least


def test_a_file_of_several_templates_is_taken_apart_with_its_comments() -> None:
    first, second = "# one\n[templates.a]\nports = [1]\n", '# two\n[templates.b]\n[templates.b.env]\nX = "1"\n'
    assert split_templates(first + "\n" + second) == {"a": first, "b": second}
    tangled = '[templates.a]\ndescription = """\n[templates.b]\n"""\n[templates.b]\n'
    with pytest.raises(Invalid, match="cannot be separated"):
        split_templates(tangled)


def test_kubernetes_options_are_laid_over_the_installations() -> None:
    source = (
        WEB
        + """
[templates.web.kubernetes]
runtime_class = "gvisor"
node_selector = {pool = "gpu"}
gpus = {"nvidia.com/gpu" = 1}
tolerations = [{key = "gpu", operator = "Exists"}]
affinity = {podAntiAffinity = {preferredDuringSchedulingIgnoredDuringExecution = [{weight = 1}]}}
"""
    )
    made = apply_template(read(source), 1, {}, CATALOG, Runs.IMAGE)
    base = PodOptions(node_selector={"os": "linux"}, memory_request="8Gi", cpu_request="4")
    options = with_template(base, made.size, made.kubernetes)
    assert (options.cpu_limit, options.cpu_request) == ("2", "2000m"), "a request is never above its limit"
    assert (options.memory_limit, options.memory_request) == (str(4 << 30), str(4 << 30))
    assert (options.runtime_class, dict(options.node_selector)) == ("gvisor", {"os": "linux", "pool": "gpu"})
    assert options.tolerations == ({"key": "gpu", "operator": "Exists"},)
    assert options.extra_resources == {"nvidia.com/gpu": "1"}
    assert options.affinity == {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    }
    transfer = for_transfers(base, replace(made.kubernetes, affinity='{"nodeAffinity": {"a": 1}, "podAffinity": {}}'))
    assert (transfer.runtime_class, transfer.node_selector) == ("gvisor", options.node_selector)
    assert transfer.tolerations == options.tolerations
    assert transfer.affinity == {"nodeAffinity": {"a": 1}}, "rules about other pods are for workspaces"
    assert for_transfers(base, made.kubernetes).affinity is None
    for affinity in ("{}", "{anything = 1}", "{nodeAffinity = 2026-11-17}"):
        assert set(mistakes_of(f"[templates.a.kubernetes]\naffinity = {affinity}\n")) == {
            "templates.a.kubernetes.affinity"
        }
    wrong = mistakes_of(
        "[templates.a.kubernetes]\ntolerations = [{operator = 'Maybe'}]\ngpus = {gpu = 1}\naffinity = {}\n"
    )
    assert set(wrong) == {
        "templates.a.kubernetes.tolerations[0].operator",
        "templates.a.kubernetes.gpus.gpu",
        "templates.a.kubernetes.affinity",
    }


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("[a-z/]+", "feature/x", "Feature"),
        ("a|b", "b", "ab"),
        ("^v[0-9]+$", "v12", "v12 "),
        (r"\w+", "größe", "a-b"),
        ("(a+)+", "a" * 256, "a" * 255 + "!"),
        ("(a*)*" * 50 + "b", "a" * 255 + "b", "a" * 256),
    ],
)
def test_a_pattern_matches_the_whole_text_in_linear_time(pattern: str, yes: str, no: str) -> None:
    """The last two would take Python's own engine longer than anyone waits."""
    made = compile_pattern(pattern)
    assert made.matches(yes)
    assert not made.matches(no)


@pytest.mark.parametrize("pattern", ["(", "a)|(b", r"(.)\1", "(?=a)b", "(a{1000}){1000}", "a" * 513])
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused_when_it_is_pushed(pattern: str) -> None:
    text = f"[templates.a.parameters.x]\ntype = 'text'\npattern = '{pattern}'"
    (mistake,) = mistakes_of(text).items()
    assert mistake[0] == "templates.a.parameters.x.pattern"
    assert "regular expression" in mistake[1] or "characters" in mistake[1]
