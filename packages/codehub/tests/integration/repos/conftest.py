"""One running CodeHub and one real git server for this folder; each test has workspaces and credentials of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.codehub.full_stack import fresh_stack
from testing.codehub.git_server import GitServer, running_git_server
from testing.codehub.repositories import Repositories, open_repositories


@pytest.fixture(scope="package")
def git_server() -> Iterator[GitServer]:
    with running_git_server() as server:
        yield server


@pytest.fixture(scope="package")
def shop(git_server: GitServer) -> Iterator[Repositories]:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.environment |= {
            "CODEHUB_INSTANCE_NETWORKS": git_server.network,
            "CODEHUB_GIT_CA_FILE": str(git_server.ca_file),
            "CODEHUB_PARTIAL_CLONE_SIZE": "4M",
            "LIMITS_MAX_RUNNING_PER_USER": "50",
        }
        stack.up()
        yield open_repositories(stack)


@pytest.fixture(autouse=True)
def only_its_own_workspaces(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test made goes with it: dozens that run would slow each other down."""
    yield
    if "shop" in request.fixturenames:
        shop = request.getfixturevalue("shop")
        shop.delete_all()
        shop.forget_credentials()
