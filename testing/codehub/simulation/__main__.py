"""`make simulate SEEDS=n`: runs seeds, stops at the first that fails and prints how to replay it."""

from __future__ import annotations

import argparse
import sys
import time

import structlog

from testing.codehub.simulation.run import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testing.codehub.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bug", action="append", default=[])
    parser.add_argument("--history", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    began, steps, faults = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = run_seed(seed, bugs=options.bug)
        steps += outcome.steps
        faults += sum(outcome.faults.values())
        if options.history or outcome.failure:
            print("\n".join(outcome.history))
        if outcome.failure:
            print(
                f"seed {seed}: {outcome.failure}\n"
                f"replay: python -m testing.codehub.simulation --first {seed} --seeds 1 --history"
            )
            return 1
    print(
        f"{options.seeds} seeds, {steps} steps, {faults} faults, {time.monotonic() - began:.1f} s: every contract held"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
