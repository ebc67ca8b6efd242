"""What a template means for a workspace: what may run, what is stored with it, and what changes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.applied_template import AppliedTemplate, apply_template, carried_over, decode, encode
from codehub.domain.effective import effective_profile
from codehub.domain.errors import Invalid
from codehub.domain.profiles import AppProfile, Catalog, Runs
from codehub.domain.schedule import parse_schedule
from codehub.domain.template_options import KubernetesOptions, Size, Toleration
from codehub.domain.template_preview import applied_changes, notes, shown
from testing.codehub.template_texts import read_template
from testing.codehub.workspaces import workspace

_CATALOG = Catalog(
    {
        "ide": AppProfile("ide", command=("x",), image="team/ide:1"),
        "no-image": AppProfile("no-image", command=("x",)),
        "no-command": AppProfile("no-command", image="team/other:1"),
    },
    default="ide",
    allowed_images=("allowed/*",),
)


def test_only_a_template_may_name_an_image_that_is_not_allowed_and_how_it_is_run() -> None:
    template = AppliedTemplate("web", 1, "any/app:1", "no-command")
    chosen = replace(workspace(), image_ref="any/app:1", template=template)
    image, profile = effective_profile(chosen, _CATALOG, Runs.IMAGE)
    assert (image, profile.name) == ("any/app:1", "no-command")
    with pytest.raises(Invalid, match="is not allowed here"):
        effective_profile(replace(chosen, template=None), _CATALOG, Runs.IMAGE)
    image, profile = effective_profile(replace(workspace(), image_ref="allowed/app"), _CATALOG, Runs.IMAGE)
    assert (image, profile.name) == ("allowed/app:latest", "ide")


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
    template = read_template('image = "any/app:1"\nprofile = "no-image"')
    assert apply_template(template, 1, {}, _CATALOG, Runs.IMAGE).image_ref == "any/app:1"
    assert apply_template(template, 1, {}, _CATALOG, Runs.COMMAND).image_ref == "no-image"
    assert apply_template(read_template(""), 1, {}, _CATALOG, Runs.COMMAND).profile == "ide"
    with pytest.raises(Invalid):
        apply_template(read_template('profile = "gone"'), 1, {}, _CATALOG, Runs.COMMAND)
    with_repo = read_template('repo = "https://a.b/{parameters.x}"\n[templates.a.parameters.x]\n')
    with pytest.raises(Invalid):
        apply_template(with_repo, 1, {"x": "a b"}, _CATALOG, Runs.COMMAND)


def test_values_of_a_parameter_that_is_gone_are_dropped() -> None:
    template = read_template("[templates.a.parameters.x]\n")
    assert carried_over(template, {"x": "1", "gone": "2"}) == {"x": "1"}


_SIZES = st.builds(Size, st.none() | st.floats(0.01, 9), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
_OPTIONS = st.builds(
    KubernetesOptions,
    runtime_class=st.sampled_from(["", "gvisor"]),
    image_pull_secrets=st.sampled_from([(), ("a", "b")]),
    tolerations=st.sampled_from([(), (Toleration("a", "Exists"), Toleration("b", value="c"))]),
    gpus=st.sampled_from([{}, {"nvidia.com/gpu": 2}]),
    affinity=st.sampled_from(["", "{}"]),
    labels=st.sampled_from([{}, {"example.org/team": "a"}]),
    annotations=st.sampled_from([{}, {"note": "b"}]),
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
    template = read_template('image = "a"\nsize = {disk = "1G"}\nkubernetes = {runtime_class = "gvisor"}')
    heads = {runtime: [note.split(":")[0] for note in notes(template, runtime)] for runtime in _RUNTIMES}
    assert heads == {
        "process": ["image", "kubernetes", "size.disk"],
        "docker": ["kubernetes", "size.disk"],
        "kubernetes": ["size.disk"],
    }
    assert [notes(read_template(""), runtime) for runtime in _RUNTIMES] == [[], [], []]


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
