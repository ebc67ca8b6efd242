"""The planted bugs: which text is replaced by which, and the tests that must then fail.

Each represents a kind of mistake that once went unnoticed. The tests run in this process, on the mutated source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
SOURCE: Final = ROOT / "packages/codehub/src"
_TESTS = "packages/codehub/tests"
_DOMAIN = (f"{_TESTS}/unit/test_domain_guards.py", f"{_TESTS}/property/test_core.py")
_RULES = (f"{_TESTS}/unit/test_domain_guards.py", f"{_TESTS}/property/test_rules.py")
_CONTROL = (f"{_TESTS}/unit/test_control_guards.py", f"{_TESTS}/unit/test_ttl_guards.py")
_DURABLE = (f"{_TESTS}/backends/test_durability.py",)
_STORES = (f"{_TESTS}/property/test_stores.py",)
_LEADER = (
    f"{_TESTS}/integration/test_coordinator.py::test_a_lock_that_nobody_pings_is_freed_by_the_server_after_the_term_is_over",
)
_CLAIMS = (f"{_TESTS}/contract/test_control_store.py",)


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str  # below codehub/
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS: Final = (
    Mutant(
        "unknown instance treated as absent",
        "domain/observed.py",
        "return False if container.reason in _RUNS_NOT else None",
        "return False",
        _DOMAIN,
    ),
    Mutant(
        "another incarnation accepted",
        "domain/observed.py",
        "if recorded is not None and (seen.ctx is None or seen.ctx.incarnation == recorded.incarnation):",
        "if recorded is not None:",
        _DOMAIN,
    ),
    Mutant(
        "archiving done by an older archive",
        "domain/transitions.py",
        "(_VOLUME_GONE, _ARCHIVE_READY, _OWN_KEY)",
        "(_VOLUME_GONE, _ARCHIVE_READY, _KEY_SET)",
        _DOMAIN,
    ),
    Mutant(
        "lost data healed by any volume",
        "domain/progress.py",
        "return seen.volume_ready.is_true\n    return workspace.archive_key",
        "return not seen.volume_ready.is_unknown\n    return workspace.archive_key",
        _DOMAIN,
    ),
    Mutant(
        "DELETING reuses an operation id",
        "domain/progress.py",
        "Operation.RESTORING, Operation.DELETING}",
        "Operation.RESTORING}",
        _DOMAIN,
    ),
    Mutant(
        "RESTORING reuses an operation id",
        "domain/progress.py",
        "Operation.CREATE_EMPTY_ARCHIVE, Operation.RESTORING, Operation.DELETING}",
        "Operation.CREATE_EMPTY_ARCHIVE, Operation.DELETING}",
        _DOMAIN,
    ),
    Mutant(
        "completed DELETING keeps the home's ctx",
        "domain/progress.py",
        "home_ctx=None if operation in (Operation.ARCHIVING, Operation.DELETING) else",
        "home_ctx=None if operation is Operation.ARCHIVING else",
        _DOMAIN,
    ),
    Mutant(
        "a gap without a leader not counted",
        "domain/ttl.py",
        "if coverage.until is None or not unbroken or now - coverage.until > longest_gap:",
        "if coverage.until is None or not unbroken:",
        _RULES,
    ),
    Mutant(
        "a recorded error does not protect archives",
        "domain/gc.py",
        "or claim.error_recorded or not",
        "or not",
        _RULES,
    ),
    Mutant(
        "the only copy is not protected",
        "domain/gc.py",
        " or not claim.home_is_seen:",
        ":",
        _RULES,
    ),
    Mutant(
        "error_recorded always false",
        "adapters/postgres/control_gc.py",
        'error_recorded=row["error_reason"] is not None,',
        "error_recorded=False,",
        _CLAIMS,
    ),
    Mutant(
        "a mark written into an empty mount point",
        "domain/stores.py",
        "if has_data and not proven:",
        "if False:",
        _STORES,
    ),
    Mutant(
        "any store without an id is taken for an unmounted one",
        "domain/stores.py",
        "if seen is None and place == recorded.place:",
        "if seen is None:",
        _STORES,
    ),
    Mutant(
        "archived before the instance is removed",
        "control/act.py",
        "        await self._remove_instance(backends)\n"
        "        await self._archive_and_remove(task, backends, ctx, current=True)",
        "        await self._archive_and_remove(task, backends, ctx, current=True)\n"
        "        await self._remove_instance(backends)",
        _CONTROL,
    ),
    Mutant(
        "an unhealthy instance is never replaced",
        "control/act.py",
        'again = workspace.error_count > 0 or container.reason == "NotHealthy"',
        "again = False and container is None",
        _CONTROL,
    ),
    Mutant(
        "a damaged recorded home is purged",
        "control/act.py",
        "(status.state is HomeState.INCOMPLETE and workspace.home_ctx is None)",
        "status.state is HomeState.INCOMPLETE",
        _CONTROL,
    ),
    Mutant(
        "restart limit never reached",
        "control/reconcile.py",
        "if again and await self._restarts_too_often(observed):",
        "if False:",
        _CONTROL,
    ),
    Mutant(
        "the deadline runs while a backend is down",
        "control/reconcile.py",
        "            deadline.renew()  # the progress clock stops while the backend does not answer\n",
        "",
        _CONTROL,
    ),
    Mutant(
        "the GC does not look a second time",
        "control/gc_runner.py",
        "        if is_protected(claim, place.op_id):\n            return\n",
        "",
        _CONTROL,
    ),
    Mutant(
        "activity forgotten before it is stored",
        "control/ttl_runner.py",
        "        pending = await self._activity.pending()\n",
        "        pending = await self._activity.pending()\n        await self._activity.forget(pending)\n",
        _CONTROL,
    ),
    Mutant(
        "a new term trusts the activity store",
        "control/ttl_runner.py",
        "self._saw = False\n\n    async def run",
        "self._saw = True\n\n    async def run",
        _CONTROL,
    ),
    Mutant(
        "the IDE is not asked before sleep",
        "control/ttl_runner.py",
        "            unasked = await self._ask(idle, now)\n",
        "            pass\n",
        _CONTROL,
    ),
    Mutant(
        "a workspace that cannot be asked is put to sleep",
        "control/ttl_runner.py",
        "                    unasked.add(workspace.id)\n",
        "",
        _CONTROL,
    ),
    Mutant(
        "a backend that hangs is waited for",
        "control/breaker.py",
        "    limit = asyncio.timeout(limit_s)\n",
        "    limit = asyncio.timeout(None)\n",
        (f"{_TESTS}/unit/test_hung_backends.py",),
    ),
    Mutant(
        "deprovision without the incarnation check",
        "adapters/homes/local_dir.py",
        "                if status.ctx is None or status.ctx.incarnation != ctx.incarnation:\n"
        '                    raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")\n'
        "                fence()\n",
        "                ctx = status.ctx or ctx\n                fence()\n",
        _DURABLE,
    ),
    Mutant(
        "a restored home is not synced",
        "adapters/homes/local_dir.py",
        "                self._sync(staging)\n",
        "",
        _DURABLE,
    ),
    Mutant(
        "an archive is not synced",
        "adapters/objectstore/transfer.py",
        "synced = pool.submit(store.sync, key)",
        "synced = pool.submit(str, key)",
        _DURABLE,
    ),
    Mutant(
        "restored without a digest check",
        "adapters/objectstore/compression.py",
        "if got != meta.size or digest.hexdigest() != meta.sha256:",
        "if got != meta.size:",
        _DURABLE,
    ),
    Mutant(
        "restored without a size check",
        "adapters/objectstore/compression.py",
        "if got != meta.size or digest.hexdigest() != meta.sha256:",
        "if digest.hexdigest() != meta.sha256:",
        _DURABLE,
    ),
    Mutant(
        "restored without a size or digest check",
        "adapters/objectstore/compression.py",
        "if got != meta.size or digest.hexdigest() != meta.sha256:",
        "if False:",
        _DURABLE,
    ),
    Mutant(
        "data removed before meta",
        "adapters/objectstore/archives.py",
        "        self._store.delete(place.archive_key + META_SUFFIX)\n"
        "        fence()\n"
        "        self._store.delete(place.archive_key)\n",
        "        self._store.delete(place.archive_key)\n"
        "        fence()\n"
        "        self._store.delete(place.archive_key + META_SUFFIX)\n",
        _DURABLE,
    ),
    Mutant(
        "a record of another boot taken as one's own",
        "adapters/process/records.py",
        "        if self.boot != boot_id():\n            return False\n",
        "",
        _DURABLE,
    ),
    Mutant(
        "launch without its second fence check",
        "adapters/process/instances.py",
        "        fence()\n        await self._launch(prepared, spec.workspace_id)\n",
        "        await self._launch(prepared, spec.workspace_id)\n",
        _DURABLE,
    ),
    Mutant(
        "the lock's session has no idle timeout",
        "adapters/postgres/control_leader.py",
        "set_config('idle_session_timeout', %s, false)",
        "set_config('codehub.unused', %s, false)",
        _LEADER,
    ),
    Mutant(
        "a term longer than the server's timeout",
        "adapters/postgres/control_leader.py",
        "TERM_S: Final = 4.0",
        "TERM_S: Final = 9.0",
        _LEADER,
    ),
)


def mutated(mutant: Mutant, source: Path = SOURCE) -> str:
    """Return the file's text with the bug in it. Raises ValueError unless the text to replace occurs exactly once."""
    text = (source / "codehub" / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)
