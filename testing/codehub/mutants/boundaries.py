"""Planted bugs that take away one protection of docs/security.md each: the test that performs the attack must fail."""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.access import ACCESS
from testing.codehub.mutants.archives import ARCHIVES
from testing.codehub.mutants.denial_of_service import DENIAL_OF_SERVICE
from testing.codehub.mutants.isolation import ISOLATION

BOUNDARIES: Final = (*ISOLATION, *ACCESS, *DENIAL_OF_SERVICE, *ARCHIVES)
