"""One running CodeHub per runtime for all tests in this folder: each leaves the workspace running, or wakes it.

On processes every test runs; on Docker a sample of each door, and all of them with `make soak`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.codehub.docker import DockerEngine
from testing.codehub.doors import Doors, Runtime, on_docker, on_processes, open_doors
from testing.codehub.full_stack import fresh_stack

RUNTIMES = ["process", pytest.param("docker", marks=pytest.mark.needs("docker", "root"))]
SAMPLE_ON_DOCKER = {
    "test_exec_runs_as_the_workspace_and_sees_no_secret_of_ours",
    "test_a_command_outlives_its_caller_and_is_found_again",
    "test_files_are_written_read_in_parts_edited_and_removed",
    "test_a_path_outside_the_home_is_refused",
    "test_processes_outlive_a_killed_workspaced_which_comes_back",
    "test_a_server_on_any_loopback_address_is_reached",
    "test_port_forward_reaches_a_server_without_any_name",
    "test_a_shell_answers_and_its_screen_is_there_for_the_next_viewer",
    "test_a_terminal_outlives_a_killed_workspaced_with_its_screen",
    "test_a_command_runs_as_the_workspaces_user_with_its_environment",
    "test_scp_sftp_and_rsync_copy_both_ways",
    "test_a_unix_socket_is_forwarded_as_desktop_ides_do",
    "test_the_host_key_stays_the_same_after_sleep_and_ssh_wakes",
    "test_work_keeps_a_workspace_awake_and_waiting_does_not",
    "test_a_session_of_vs_code_outlives_its_ssh_and_a_restart_of_the_proxy",
    "test_secrets_reach_the_workspace_alone",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        name = item.name.partition("[")[0]
        docker = "runtime" in getattr(item, "fixturenames", ()) and "docker" in item.name
        item.add_marker(pytest.mark.xdist_group("docker" if docker else "doors"))
        if docker:
            item.add_marker(pytest.mark.timeout(900))  # the first of them fills the volume of CodeHub's tools
        if docker and name not in SAMPLE_ON_DOCKER:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="package", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """What makes a stack one on this runtime."""
    if request.param == "process":
        return on_processes
    engine: DockerEngine = request.getfixturevalue("docker_engine")
    return on_docker(engine)


@pytest.fixture(scope="package")
def doors(runtime: Runtime) -> Iterator[Doors]:
    with fresh_stack() as stack:
        runtime(stack)
        stack.up()
        yield open_doors(stack)
