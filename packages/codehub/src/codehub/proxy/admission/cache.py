"""Caches admissions by credential: fresh for two seconds, kept for a minute as a fallback while the database is down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from codehub.proxy.admission.decision import Admission, Credential
from codehub.proxy.coarse_clock import CoarseClock

FRESH_S: Final = 2.0
RENEW_S: Final = 1.0  # after this time, the next request triggers a refresh
KEPT_S: Final = 60.0
MAX_REMEMBERED: Final = 20_000


class AdmissionCache:
    def __init__(self, clock: CoarseClock) -> None:
        self._clock = clock
        self._admissions: dict[Credential, Admission] = {}
        self._verified: dict[Credential, float] = {}

    def fresh(self, credential: Credential) -> Admission | None:
        admission = self._admissions.get(credential)
        return None if admission is None or self._clock.now > admission.fresh_until else admission

    def holds(self, admission: Admission) -> bool:
        return self._admissions.get(admission.credential) is admission

    def remember(self, admission: Admission) -> None:
        if len(self._verified) >= MAX_REMEMBERED:
            oldest = next(iter(self._verified))  # one user can ask for each port of a workspace
            self.drop(oldest)
            del self._verified[oldest]
        self._admissions[admission.credential] = admission
        self.refresh(admission)

    def refresh(self, admission: Admission) -> None:
        """Extend an admission that was just checked again without changes."""
        now = self._clock.now
        admission.fresh_until = now + FRESH_S
        admission.renew_at = now + RENEW_S
        self._verified[admission.credential] = now

    def drop(self, credential: Credential) -> None:
        """Remove the admission. Holders of it see that it has expired."""
        admission = self._admissions.pop(credential, None)
        if admission is not None:
            admission.fresh_until = 0.0

    def kept(self, credentials: Iterable[Credential]) -> Admission | None:
        """Return an admission of the last minute. Used while the database is down."""
        for credential in credentials:
            admission = self._admissions.get(credential)
            if admission is not None and self._clock.now - self._verified[credential] < KEPT_S:
                admission.fresh_until = self._clock.now + FRESH_S
                return admission
        return None

    def sweep(self) -> None:
        oldest = self._clock.now - KEPT_S
        for credential in [c for c, at in self._verified.items() if at < oldest]:
            self.drop(credential)
            del self._verified[credential]
